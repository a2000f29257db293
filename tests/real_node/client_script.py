"""What the client pod runs: `python3 -c SCRIPT JSON`, with nothing but Python itself.

The JSON is a list of calls that are made at once: `{"method", "url", "body", "headers"}`; or one of them with `"streams"`, which
is made again and again by so many at once until there is a file /tmp/stop. Prints JSON: an answer for each call.
"""

import concurrent.futures
import http.client
import json
import pathlib
import sys
import time
import urllib.parse
from typing import Any

STOP = pathlib.Path("/tmp/stop")  # noqa: S108 - in a container of its own
SECONDS = 60


def call(wanted: dict[str, Any]) -> dict[str, Any]:
    """One call. Returns status, headers, text, and when each line of a stream came, in seconds from its start."""
    url = urllib.parse.urlsplit(wanted["url"])
    connection = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=SECONDS)
    body = wanted.get("body")
    began = time.monotonic()
    lines, arrivals = [], []
    try:
        connection.request(
            wanted.get("method") or ("GET" if body is None else "POST"),
            url.path + (f"?{url.query}" if url.query else ""),
            None if body is None else json.dumps(body),
            {"Content-Type": "application/json"} | wanted.get("headers", {}),
        )
        answer = connection.getresponse()
        for line in answer:
            lines.append(line.decode())
            if line.startswith(b"data: "):
                arrivals.append(time.monotonic() - began)
    except (OSError, http.client.HTTPException) as error:
        return {"status": 0, "headers": {}, "text": "".join(lines) + repr(error), "arrivals": arrivals}
    finally:
        connection.close()
    return {
        "status": answer.status,
        "headers": {name.lower(): value for name, value in answer.getheaders()},
        "text": "".join(lines),
        "arrivals": arrivals,
    }


def again_and_again(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Answers to the same call, one after another, until someone says stop."""
    answers = []
    while not STOP.exists():
        answers.append(call(wanted))
        if answers[-1]["status"] == 0:
            time.sleep(0.05)
    return answers


def main(text: str) -> list[dict[str, Any]]:
    """Make the calls."""
    wanted: list[dict[str, Any]] = json.loads(text)
    STOP.unlink(missing_ok=True)
    streams = wanted[0].get("streams")
    with concurrent.futures.ThreadPoolExecutor(streams or len(wanted)) as pool:
        if streams is None:
            return list(pool.map(call, wanted))
        found = pool.map(again_and_again, wanted * streams)
        return [answer for answers in found for answer in answers]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
