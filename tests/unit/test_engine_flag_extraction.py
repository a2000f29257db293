"""How flags are read from an engine's source: small made-up engines, and what their parsers would accept."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.engine_flags import sglang, vllm
from tests.engine_flags.package import Package
from tests.unit.engine_flags import Flag, Takes

VLLM = {
    "vllm/config/cache.py": """
        from typing import Literal
        CacheDType = Literal["auto", "fp8"]
        @config
        class CacheConfig:
            dtype: CacheDType = "auto"
            size: int | None = None
            caching: bool | None = None
            names: list[str] | None = None
            extra: dict[str, int] | None = None
            token: bool | str | None = None
            free: CacheDType | str = "auto"
    """,
    "vllm/config/__init__.py": "from vllm.config.cache import CacheConfig",
    "vllm/config/kv_transfer.py": """
        class KVTransferConfig:
            kv_role: str | None = None
            kv_connector: str | None = None
    """,
    "vllm/engine/arg_utils.py": """
        from vllm.config import CacheConfig
        class EngineArgs:
            def add_cli_args(parser):
                cache_kwargs = get_kwargs(CacheConfig)
                group = parser.add_argument_group("cache")
                group.add_argument("--cache-dtype", "-cd", **cache_kwargs["dtype"])
                group.add_argument("--size", **{**cache_kwargs["size"], "default": 3})
                group.add_argument("--enable-caching", **cache_kwargs["caching"])
                group.add_argument("--names", **cache_kwargs["names"])
                group.add_argument("--extra", **cache_kwargs["extra"])
                group.add_argument("--token", **cache_kwargs["token"])
                group.add_argument("--free", **cache_kwargs["free"])
                parser.add_argument("--quiet", action="store_true", default=False)
    """,
    "vllm/entrypoints/openai/cli_args.py": """
        class FrontendArgs:
            allowed_origins: list[str] | None = None
            port: int = 8000
            def add_cli_args(parser):
                frontend_kwargs = get_kwargs(FrontendArgs)
                frontend_kwargs["allowed_origins"]["type"] = parse
                del frontend_kwargs["allowed_origins"]["nargs"]
                for key, value in frontend_kwargs.items():
                    parser.add_argument(f"--{key}", **value)
        def make_arg_parser(parser):
            parser.add_argument("model_tag", nargs="?")
            parser.add_argument("--headless", action="store_true")
    """,
    "vllm/entrypoints/cli/serve.py": "",
    "vllm/utils/argparse_utils.py": "",
    "vllm/envs.py": 'environment_variables: dict[str, object] = {"VLLM_A": lambda: 1, "HOME": lambda: 2}',
    "vllm/distributed/kv_transfer/kv_connector/factory.py": """
        Factory.register_connector("B", "b", "B")
        Factory.register_connector("A", "a", "A")
    """,
    "vllm/distributed/kv_transfer/kv_connector/v1/nixl/worker.py": """
        backends = config.get_from_extra_config("backends", ["UCX"])
        threads = self.kv_connector_extra_config.get("threads")
        other = something.get("not a key")
    """,
}

SGLANG = {
    "sglang/srt/choices.py": 'BACKENDS = ["a", "b"]',
    "sglang/srt/server_args.py": """
        import os
        class ServerArgs:
            port: int = 1
            def add_cli_args(parser):
                parser.add_argument("--port", type=int, default=ServerArgs.port)
                parser.add_argument("--old", action=DeprecatedStoreTrueAction)
        os.environ.get("SGLANG_ONE")
    """,
    "sglang/srt/environ.py": """
        class Envs:
            SGLANG_TWO = EnvStrWithAlias("", deprecated_name="SGL_TWO")
    """,
    "sglang/srt/arg_groups/fields/all.py": """
        from sglang.srt.choices import BACKENDS
        class Fields:
            model_path: A[str, Arg(help="The path.", aliases=["--model"])]
            backend: A[Optional[str], Arg(help="One.", choices=BACKENDS + ["c"])] = None
            fast: A[Optional[bool], "Be fast."] = None
            targets: A[List[str], "Many."] = None
            paths: A[List[str], Arg(action=PathAction, action_kwargs={"nargs": "*"})] = None
            hidden: A[int, Arg(no_cli=True)] = 1
            internal: int = 1
    """,
}


def package(folder: Path, files: dict[str, str]) -> Package:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
    return Package(folder)


def test_the_type_of_a_field_tells_what_a_flag_of_vllm_takes(tmp_path: Path) -> None:
    found = vllm.flags(package(tmp_path, VLLM))
    assert found == {
        flag.name: flag
        for flag in (
            Flag("--cache-dtype", Takes.ONE, ("-cd",), ("auto", "fp8"), "auto"),
            Flag("--size", Takes.ONE, default=3),
            Flag("--enable-caching", Takes.NONE, ("--no-enable-caching",)),
            Flag("--names", Takes.MANY),
            Flag("--extra", Takes.JSON),
            Flag("--token", Takes.OPTIONAL),
            Flag("--free", Takes.ONE, default="auto"),
            Flag("--quiet", Takes.NONE, default=False),
            Flag("--allowed-origins", Takes.ONE),
            Flag("--port", Takes.ONE, default=8000),
            Flag("--headless", Takes.NONE),
        )
    }


def test_vllm_disables_what_it_enables_once_its_parser_can(tmp_path: Path) -> None:
    files = VLLM | {"vllm/utils/argparse_utils.py": "class EnableDisableAction(BooleanOptionalAction): ..."}
    flag = vllm.flags(package(tmp_path, files))["--enable-caching"]
    assert flag.aliases == ("--no-enable-caching", "--disable-caching")


def test_vllm_names_its_variables_connectors_and_their_keys(tmp_path: Path) -> None:
    source = package(tmp_path, VLLM)
    assert vllm.environment(source) == {"VLLM_A", "HOME"}
    assert vllm.more(source) == {
        "kv_transfer_config": ["kv_connector", "kv_role"],
        "kv_connectors": ["A", "B"],
        "kv_connector_extra_config": {"nixl": ["backends", "threads"]},
    }


def test_a_release_that_keeps_its_arguments_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="elsewhere"):
        vllm.flags(package(tmp_path, {"vllm/engine/arg_utils.py": ""}))
    with pytest.raises(LookupError, match="server_args"):
        sglang.flags(package(tmp_path, {"sglang/__init__.py": ""}))


def test_sglang_has_flags_of_calls_and_of_annotated_fields(tmp_path: Path) -> None:
    assert sglang.flags(package(tmp_path, SGLANG)) == {
        flag.name: flag
        for flag in (
            Flag("--port", Takes.ONE, default=1),
            Flag("--old", Takes.NONE),
            Flag("--model-path", Takes.ONE, ("--model",)),
            Flag("--backend", Takes.ONE, choices=("a", "b", "c")),
            Flag("--fast", Takes.NONE),
            Flag("--targets", Takes.MANY),
            Flag("--paths", Takes.MANY),
        )
    }


def test_sglang_reads_declared_variables_their_old_names_and_those_it_asks_for_itself(tmp_path: Path) -> None:
    assert sglang.environment(package(tmp_path, SGLANG)) == {"SGLANG_ONE", "SGLANG_TWO", "SGL_TWO"}
