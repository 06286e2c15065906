#!/usr/bin/env python3
"""A small Hugging Face: hf_server.py FOLDER prints its port. FOLDER/user/repo has the files of a repository.

Files are sent through a redirection, with ranges. FOLDER/faults may hold words: `cut` ends every answer after
100,000 bytes of a file, `whole` ignores ranges, `damaged` flips a byte, `token` asks for the token "secret".
FOLDER/requests logs a line per request: path, range, whether a token came with it."""
import hashlib, http.server, json, pathlib, sys, urllib.parse

folder = pathlib.Path(sys.argv[1])
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(headers.get("length", len(body))))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        faults = (folder / "faults").read_text().split() if (folder / "faults").exists() else []
        token = self.headers.get("Authorization", "-")
        with open(folder / "requests", "a") as log:
            log.write(f"{self.path} {self.headers.get('Range', '-')} {token.split()[-1]}\n")
        path = self.path.split("?")[0].strip("/").split("/")
        if "token" in faults and path[0] != "cdn" and token != "Bearer secret":
            return self.answer(401)
        if path[:2] == ["api", "models"] and (folder / "/".join(path[2:])).is_dir():
            files = sorted((folder / "/".join(path[2:])).iterdir())
            return self.answer(200, json.dumps({"sha": COMMIT, "siblings": [
                {"rfilename": f.name, "blobId": "0" * 40, "size": f.stat().st_size, "lfs": {
                    "sha256": hashlib.sha256(f.read_bytes()).hexdigest(), "size": f.stat().st_size}}
                for f in files]}).encode())
        if path[2:4] == ["resolve", COMMIT]:
            return self.answer(302, Location=f"/cdn/{path[0]}/{path[1]}/{path[4]}")
        file = folder / urllib.parse.unquote("/".join(path[1:]))
        if path[0] == "cdn" and file.is_file():
            return self.send_part(file.read_bytes(), faults)
        return self.answer(404)

    def send_part(self, data, faults):
        begin = 0
        if "Range" in self.headers and "whole" not in faults:
            begin = int(self.headers["Range"].removeprefix("bytes=").split("-")[0])
        if "damaged" in faults:
            data = data[:-1] + bytes([data[-1] ^ 1])
        body = data[begin:]
        sent = body[:100_000] if "cut" in faults else body
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = True


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
