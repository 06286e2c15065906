"""tcp_proxy — a bad link in front of a server: delays bytes, breaks connections, or drops everything."""

import random
import socket
import threading
import time


class Proxy:
    def __init__(self, target_port, p_break=0.0, delay=0.0, seed=1):
        self.target, self.p_break, self.delay, self.chance = target_port, p_break, delay, random.Random(seed)
        self.is_cut, self.n_broken, self.open = False, 0, set()
        self.n_seen, self.newest, self.n_overtaken = 0, 0, 0  # blocks; blocks delivered out of order
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
                server = None if self.is_cut else socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                if self.listener.fileno() < 0:
                    return
                server = None
            if server is None:
                client.close()
                continue
            self.open |= {client, server}
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self.pass_on, args=(a, b), daemon=True).start()

    def pass_on(self, source, sink):
        try:
            while data := source.recv(16384):
                if self.chance.random() < self.p_break:
                    self.n_broken += 1
                    break
                self.n_seen += 1
                number = self.n_seen
                time.sleep(self.chance.random() * self.delay)
                self.n_overtaken += number < self.newest
                self.newest = max(self.newest, number)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            self.open.discard(end)
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def cut(self, is_cut=True):
        """Stops (or restores) all traffic in both directions."""
        self.is_cut = is_cut
        for end in list(self.open) if is_cut else ():
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        self.cut()
