"""What vLLM itself hashes for the handshake of its NIXL connector, for several command lines.

A program for vLLM's own Python, in a container: `handshake.py FILE`, where the file holds a list of lists of arguments of
`vllm serve` as JSON. Prints, after a line of its own that marks it, a list of hashes; an item is null where vLLM would not start.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any, Final

MARK: Final = "compatibility hashes:"
_BACKEND: Final = "CPU_ATTN"
"""The one attention backend that a CPU has, whatever is asked for."""


def main() -> None:
    """Run the program."""
    parsers: Any = importlib.import_module("vllm.utils.argparse_utils")
    servers: Any = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    metadata: Any = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata")
    engines: Any = importlib.import_module("vllm.engine.arg_utils")

    def hash_of(words: list[str]) -> str | None:
        args = servers.make_arg_parser(parsers.FlexibleArgumentParser()).parse_args(words)
        args.model = args.model_tag
        try:
            config = engines.AsyncEngineArgs.from_cli_args(args).create_engine_config()
        except ValueError as error:
            sys.stderr.write(f"{words}: {error}\n")
            return None
        return str(metadata.compute_nixl_compatibility_hash(config, _BACKEND))

    found = [hash_of(words) for words in json.loads(Path(sys.argv[1]).read_text())]
    sys.stdout.write(f"\n{MARK}\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
