"""The example of a service: answers over HTTP, also to several at once, and refusals."""

import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient

from scripts.__main__ import load
from structsmooth import load as load_model
from structsmooth.cli import main

serve = load("serve")
SENTENCES = [["Ada", "sang"], ["she", "sang", "Ada"], ["sang"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("serve")
    (path / "train.txt").write_text("Ada B-PER\nsang O\n\nshe O\nsang O\n")
    options = ["--train", str(path / "train.txt"), "--bits", "8", "--no-rich", "--passes", "5", "--quiet"]
    assert main(["train", "ner", *options, "--out", str(path / "model")]) == 0
    return path / "model"


@pytest.fixture(scope="module")
def model(folder) -> Any:
    return load_model(folder)


@pytest.fixture(scope="module")
def port(model) -> Iterator[int]:
    with serve.server(model, 0) as serving:
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield serving.server_port
        serving.shutdown()
        thread.join()


def posted(port: int, body: str, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/", body, headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_answers_are_those_of_the_model(port, model):
    assert posted(port, json.dumps(SENTENCES)) == (200, model.predict(SENTENCES))
    assert posted(port, "[]") == (200, [])


def test_several_at_once_get_their_own_answers(port, model):
    asked = [SENTENCES[i % 3 :] + SENTENCES[: i % 3] for i in range(24)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda sentences: posted(port, json.dumps(sentences)), asked))
    assert answers == [(200, model.predict(sentences)) for sentences in asked]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("[", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"a": 1}', "a list of sentences"),
        ('["Ada"]', "a list of sentences"),
        ("[[]]", "a list of sentences"),
        ('[["Ada", 3]]', "words must be texts"),
        ('[["Ada", "\\ud83d"]]', "a lone surrogate"),
        (json.dumps([["Ada"] * 10_001]), "at most 10,000 words"),
    ],
)
def test_what_is_no_list_of_sentences_is_refused(port, body, said):
    status, answer = posted(port, body)
    assert status == 400
    assert said in answer["error"]


@pytest.mark.parametrize("length", ["1048577", "9" * 5000])
def test_requests_without_end_are_refused(port, length):
    assert posted(port, "[]", **{"Content-Length": length})[0] == 413


def test_clients_that_hang_up_are_no_errors(port, model, capsys):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST / HTTP/1.0\r\nContent-Length: 9\r\n\r\n[")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
    assert posted(port, json.dumps(SENTENCES)) == (200, model.predict(SENTENCES))
    assert "Traceback" not in capsys.readouterr().err


def test_a_folder_without_a_model_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        serve.main([str(tmp_path)])
    assert "model.json" in capsys.readouterr().err


def test_the_snippet_with_fastapi(folder, monkeypatch):
    """The block of docs/production.md."""
    text = (Path(__file__).parents[2] / "docs" / "production.md").read_text(encoding="utf-8")
    blocks = (block.partition("```")[0] for block in text.split("```py\n")[1:])
    code = next(block for block in blocks if "FastAPI" in block).replace("runs/demo", str(folder))
    names: dict[str, Any] = {}
    exec(compile(code, "production.md", "exec"), names)
    client = TestClient(names["app"])
    assert client.post("/", json=SENTENCES).json() == load_model(folder).predict(SENTENCES)
    assert client.post("/", json=["Ada"]).status_code == 422
