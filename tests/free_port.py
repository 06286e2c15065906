#!/usr/bin/env python3
"""A port that nobody has; as a program it prints one. Below those that the kernel gives to outgoing
connections (32768 and up), so that none takes it while a hub is not up yet or starts again."""
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
