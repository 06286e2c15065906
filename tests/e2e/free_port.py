#!/usr/bin/env python3
"""Prints a free port below the kernel's range for outgoing connections (32768 and up), so that none takes it
before the hub is up or while it restarts."""
import random
import socket


def free_port():
    while True:
        port = random.randrange(10000, 32768)
        with socket.socket() as s:
            try:
                s.bind(("0.0.0.0", port))
                return port
            except OSError:
                pass


if __name__ == "__main__":
    print(free_port())
