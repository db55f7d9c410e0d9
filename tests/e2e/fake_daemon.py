"""A daemon without a model: answers what `quire chat` sends in ways that a test chooses by the text of the last message.

What was posted is kept in `posts` as (path, body), and `gone` counts clients that left during a stream.
"""
import http.server
import json
import os
import socketserver
import threading
import time

SLOW_PIECES = 200


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, code, value):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        daemon = self.server
        if self.path == "/health":
            daemon.loading -= 1
            self.reply(200 if daemon.loading < 0 else 503, {"status": "ok" if daemon.loading < 0 else "loading"})
        elif self.path == "/v1/models":
            self.reply(200, {"data": [{"id": "fake \x1b[31mmodel", "max_model_len": 2048}]})
        elif self.path == "/v1/kv":
            self.reply(200, {"pool": {"blocks": 12}})
        else:
            self.reply(404, {"error": {"message": "no such path"}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts.append((self.path, body, dict(self.headers)))
        if self.path == "/apply-template":
            if self.server.base_model:
                self.reply(400, {"error": {"message": "this model has no chat template"}})
            else:
                self.reply(200, {"prompt": "?"})
            return
        self.answer(body["messages"][-1]["content"])

    def answer(self, question):
        if question == "refuse":
            self.reply(400, {"error": {"message": "the prompt is too long", "param": "messages"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self.stream(question)
        except (BrokenPipeError, ConnectionResetError):
            self.server.gone += 1

    def event(self, value):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.wfile.write(b"data: " + data + b"\n\n")

    def piece(self, text):
        self.event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], "usage": None})

    def stream(self, question):
        self.wfile.write(b": a comment\r\n\r\n")
        if question == "slow":
            for _ in range(SLOW_PIECES):
                self.piece("slow ")
                time.sleep(0.02)
        for text in ("Echo: ", question, " \u00e9\U0001f389\x1b[2J"):
            self.piece(text)
        if question == "fail":
            self.event({"error": {"message": "the step failed"}})
            return
        if question == "cut":
            return
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None})
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 80}}
        self.event({"choices": [], "usage": usage, "timings": {"predicted_per_second": 42.5}})
        self.event(b"[DONE]")


class FakeDaemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path, loading=0, base_model=False):
        self.path, self.loading, self.base_model = str(path), loading, base_model
        self.posts, self.gone = [], 0
        super().__init__(self.path, Handler)

    def get_request(self):
        request, _ = super().get_request()
        return request, ("local", 0)

    def chats(self):
        return [body for path, body, _ in self.posts if path == "/v1/chat/completions"]

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
        os.unlink(self.path)
