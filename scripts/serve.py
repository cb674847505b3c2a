"""An HTTP endpoint for a trained tagger, by Python's own server: lists of words in, their tags out, both in JSON.

    python -m scripts serve runs/mine --port 8000
    curl --data '[["Ada", "sang"]]' localhost:8000

Each request has a thread of its own, and compiled oracles release the GIL.
"""

import json
import sys
from argparse import Namespace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scripts.shared.harness import RequestError, command, option, reading
from structsmooth import load

LARGEST = 2**20  # bytes of a request
WAITING = 128  # clients that may connect while others are let in
MOST_WORDS = 10_000  # of all sentences of a request


def sentences_of(body: bytes) -> list[list[str]]:
    """The sentences of a request.

    Raises:
        RequestError: it holds something else, or too much.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request is no JSON: {error}") from error
    if not (isinstance(found, list) and all(isinstance(words, list) and words for words in found)):
        raise RequestError("the request must be a list of sentences, which are lists of words")
    if not all(isinstance(word, str) and word for words in found for word in words):
        raise RequestError("words must be texts that are not empty")
    if any("\ud800" <= character <= "\udfff" for words in found for word in words for character in word):
        raise RequestError("words must be whole characters: one has half of a pair (a lone surrogate)")
    if sum(map(len, found)) > MOST_WORDS:
        raise RequestError(f"the request must have at most {MOST_WORDS:,} words")
    return found


class Service(ThreadingHTTPServer):
    """A server of many clients, of whom some hang up."""

    request_queue_size = WAITING

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that has ended or waits too long; of all else, what has gone wrong."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def server(model: Any, port: int, host: str = "127.0.0.1") -> Service:
    """A server that answers by a model once its ``serve_forever`` is called; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        """Answers of one request."""

        timeout = 10

        def do_POST(self) -> None:
            size = self.headers.get("Content-Length", "")
            if not (size.isascii() and size.isdigit() and len(size) < 20 and int(size) <= LARGEST):
                self.answer(413, {"error": f"Content-Length must be from 0 to {LARGEST}"})
                return
            try:
                sentences = sentences_of(self.rfile.read(int(size)))
                with reading():
                    tags = model.predict(sentences) if sentences else []
            except RequestError as error:
                self.answer(400, {"error": str(error)})
                return
            self.answer(200, tags)

        def answer(self, status: int, content: Any) -> None:
            """Send JSON."""
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing of each request."""

    return Service((host, port), Handler)


@command(
    option("model", None, "folder of a trained tagger"),
    option("--port", 8000, "to listen on"),
    option("--host", "127.0.0.1", "address to listen on; others than this machine reach 0.0.0.0"),
    threads=None,
    program="python -m scripts serve",
)
def main(options: Namespace) -> None:
    """Load the model, answer one request of its own, which compiles what is not compiled yet, and serve."""
    with reading():
        model = load(options.model)
        model.predict([["Ada"]])
        serving = server(model, options.port, options.host)
    with serving:
        print(f"listening on http://{options.host}:{serving.server_port}", flush=True)
        serving.serve_forever()


if __name__ == "__main__":
    raise SystemExit(main())
