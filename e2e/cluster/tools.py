"""Which binaries a cluster needs, and the recipe that builds each one.

Pure: reads the committed modules beside this file, starts nothing. A version is written in go.mod and nowhere else;
the cache key of a binary follows from its module files and build flags, so that a changed dependency or flag never
meets a stale binary.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULES: Final = Path(__file__).parent / "tools"

# A build date that never changes keeps the binaries reproducible.
_BUILD_DATE: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Tool:
    """A program that is built from a Go module.

    Attributes:
        name: File name of the binary.
        package: Import path of its main package.
        module: Folder below `MODULES` whose go.mod pins it.
        cold_seconds: Wall time of a build with an empty Go cache on two cores, measured in the order of `TOOLS`
            (the first of a module pays for what the next ones share).
        tags: Build tags.
        cgo: Whether it links C, and so needs a C compiler.
        version_of: Import path of the package whose version it bears, if that is not its own.
    """

    name: str
    package: str
    module: str
    cold_seconds: int
    tags: str = ""
    cgo: bool = False
    version_of: str | None = None


@dataclass(frozen=True)
class Recipe:
    """All that is needed to build one binary and to find it again.

    Attributes:
        name: File name of the binary.
        package: Import path of the main package.
        module_dir: Folder of the go.mod to build in.
        version: Version of the program, such as `v1.37.2`.
        go_version: The oldest Go that the module accepts, such as `1.26.8`.
        link_flags: Value of `go build -ldflags`.
        key: Name of the binary's folder in the cache.
        cold_seconds: Expected wall time of a build with an empty Go cache.
        tags: Value of `go build -tags`.
        cgo: Whether it links C.
    """

    name: str
    package: str
    module_dir: Path
    version: str
    go_version: str
    link_flags: str
    key: str
    cold_seconds: int
    tags: str = ""
    cgo: bool = False


TOOLS: Final = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", "etcd", 38),
    Tool("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "kubernetes", 465),
    Tool("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "kubernetes", 180),
    Tool("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "kubernetes", 19),
    Tool("kubectl", "k8s.io/kubernetes/cmd/kubectl", "kubernetes", 46),
    Tool("kwok", "sigs.k8s.io/kwok/cmd/kwok", "kwok", 60),
    Tool("helm", "helm.sh/helm/v4/cmd/helm", "helm", 249),
)

_CONTAINERD: Final = "github.com/containerd/containerd/v2/cmd"

NODE_TOOLS: Final = (
    Tool("kubelet", "k8s.io/kubernetes/cmd/kubelet", "kubernetes", 42),
    Tool("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", "kubernetes", 20),
    Tool("containerd", f"{_CONTAINERD}/containerd", "containerd", 90),
    # Of the same module as the daemon: pods fail on a shim of another version.
    Tool("containerd-shim-runc-v2", f"{_CONTAINERD}/containerd-shim-runc-v2", "containerd", 5),
    Tool("ctr", f"{_CONTAINERD}/ctr", "containerd", 5),
    Tool("runc", "github.com/opencontainers/runc", "runc", 16, tags="seccomp", cgo=True),
    Tool("coredns", "disagg.dev/e2e/tools/coredns", "coredns", 30, version_of="github.com/coredns/coredns"),
    Tool("pause", "disagg.dev/e2e/tools/pause", "pause", 2),
)
"""What a real node needs beside the control plane."""


def recipes(tools: Iterable[Tool] = TOOLS, modules: Path = MODULES) -> tuple[Recipe, ...]:
    """The recipes of tools, in build order.

    Args:
        tools: The tools.
        modules: Folder that holds one Go module a folder.

    Returns:
        One recipe for each of them.
    """
    return tuple(
        recipe(
            tool.name,
            tool.package,
            modules / tool.module,
            cold_seconds=tool.cold_seconds,
            tags=tool.tags,
            cgo=tool.cgo,
            version_of=tool.version_of,
        )
        for tool in tools
    )


def recipe(  # noqa: PLR0913 - a build has that many choices, most of them optional
    name: str,
    package: str,
    module_dir: Path,
    *,
    cold_seconds: int = 60,
    tags: str = "",
    cgo: bool = False,
    version_of: str | None = None,
) -> Recipe:
    """The recipe of one binary.

    Args:
        name: File name of the binary.
        package: Import path of its main package.
        module_dir: Folder with go.mod and go.sum; a missing go.sum counts as empty.
        cold_seconds: Expected wall time of a build with an empty Go cache.
        tags: Value of `go build -tags`.
        cgo: Whether it links C.
        version_of: Import path of the package whose version it bears, by default its own.

    Returns:
        The recipe, its key derived from the module files and the build flags.

    Raises:
        ValueError: If go.mod has no `go` line.
    """
    go_mod = (module_dir / "go.mod").read_text()
    go_sum = module_dir / "go.sum"
    version = package_version(go_mod, version_of or package)
    flags = link_flags(package, version)
    parts = [go_mod, go_sum.read_text() if go_sum.exists() else "", package, flags]
    parts += [source.read_text() for source in sorted(module_dir.glob("*.go"))]
    if tags or cgo:
        parts += [tags, f"cgo={cgo}"]
    content = "\0".join(parts)
    return Recipe(
        name=name,
        package=package,
        module_dir=module_dir,
        version=version,
        go_version=go_directive(go_mod),
        link_flags=flags,
        key=f"{name}-{version}-{hashlib.sha256(content.encode()).hexdigest()[:12]}",
        cold_seconds=cold_seconds,
        tags=tags,
        cgo=cgo,
    )


def package_version(go_mod: str, package: str) -> str:
    """The version of the module that holds a package.

    Args:
        go_mod: Text of a go.mod.
        package: Import path of the package.

    Returns:
        Version of the required module with the longest path that holds `package`; `v0.0.0` if no required
        module does, which means that the package belongs to the module itself.
    """
    required = re.findall(r"^\s*(?:require\s+)?(\S+)\s+(v\d\S*)(?:\s*//.*)?$", go_mod, re.MULTILINE)
    owners = [(path, version) for path, version in required if f"{package}/".startswith(f"{path}/")]
    return max(owners, key=lambda owner: len(owner[0]), default=("", "v0.0.0"))[1]


def go_directive(go_mod: str) -> str:
    """The oldest Go that a module accepts.

    Args:
        go_mod: Text of a go.mod.

    Returns:
        The version of its `go` line, such as `1.26.8`.

    Raises:
        ValueError: If there is no such line.
    """
    if found := re.search(r"^go (\S+)$", go_mod, re.MULTILINE):
        return found[1]
    raise ValueError("go.mod has no go line")


def link_flags(package: str, version: str) -> str:
    """The link flags of a program: stripped, and stamped with its version where it can be.

    Args:
        package: Import path of the main package.
        version: Version to stamp, such as `v1.37.2`.

    Returns:
        Value of `go build -ldflags`.
    """
    flags = ["-s", "-w"]
    if package.startswith("k8s.io/kubernetes/"):
        major, minor = version.removeprefix("v").split(".")[:2]
        stamp = {
            "gitVersion": version,
            "gitMajor": major,
            "gitMinor": minor,
            "gitTreeState": "clean",
            "buildDate": _BUILD_DATE,
        }
        # client-go carries its own copy, which names the program in user agents.
        for target in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {target}.{key}={value}" for key, value in stamp.items()]
    elif package.startswith("helm.sh/helm/v4/"):
        flags.append(f"-X helm.sh/helm/v4/internal/version.version={version}")
    return " ".join(flags)
