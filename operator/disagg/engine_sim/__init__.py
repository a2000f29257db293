"""An inference engine without a GPU, which refuses what the real one refuses.

The core is pure and takes time as an argument: `blocks` (paged KV cache), `scheduler` (continuous batching), `text` (what
is said follows from the KV bytes that are there), `timing` (how long it takes). Around it stand `engine`, which runs the
scheduler in time, `transfer`, which moves KV between engines, `api`, OpenAI's HTTP, and `server`, the process. `dialects`
hold what is one engine's own; nothing else may know them.

For a further dialect
=====================

A dialect is a module in `dialects` with one function, `build(arguments, environment, sim) -> Instance`
(`dialects.Dialect`); `dialects.vllm` is the whole of one. It

- parses its command line (argparse exits with 2, a `StartError` with 1),
- makes a `Scheduler` of a `BlockPool`, a `Profile` and `Limits`; `Limits.identity` must hold whatever makes KV bytes
  differ, so that engines that differ in it say other things,
- makes an `Engine` for each rank, with an `Observer` (its metrics) and, if KV moves, a `Connector`,
- makes a `Serving` and an `application`, and adds routes: those of `api.generate`, `api.models`, and its own,
- says in `ProcessSettings` how the process drains: `shutdown_timeout=None` has no bound.

How the two styles of transfer plug in (`transfer.connector.Connector`):

- One after the other (vLLM, TensorRT-LLM): prefill's `finished` keeps blocks and puts into `output.transfer` what the
  answer says, which `Serving.extra` writes into it; decode's `arrived` reads the same from `Request.transfer`, which
  `Serving.transfer_of` takes from the call, and sets `Request.remote`; `fetch` then brings the bytes.
- Both at once (SGLang): `Serving.transfer_of` takes the bootstrap fields of the call and `Serving.admit` refuses a call
  without a room. Decode's `fetch` waits, with a timeout, until the prefill side says that the room is ready, then reads;
  prefill's `finished` keeps blocks under the room (`scheduler.leases.hold` is by request id, so let it be the room's) and
  answers who waits for it. Errors of `fetch` end the request with `error`, or compute it here if `recomputes`.

`transfer.data` (a port that blocks are read from, and notifications) and `transfer.side_channel` suit either. A prefill
that must wait for its peer before it may start holds the request back before `Engine.submit`. TensorRT-LLM's decode says
the first token that prefill has said: put it into `Request.output` before `submit`, and the voice must have said it too.
"""
