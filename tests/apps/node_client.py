"""A client of terraced, written from docs/daemon-protocol.md alone."""

import mmap
import os
import socket
import struct

HELLO, FIND, READ, RENEW, RELEASE, RESERVE, COMMIT, CANCEL, PIN, UNPIN, STATS = range(1, 12)
ROWS = struct.pack("<3I", 1, 0, 0)
NEW_LEASE = 2**64 - 1


class Refused(Exception):
    """A request was answered with an error."""


def text(content):
    return struct.pack("<H", len(content)) + content


class NodeClient:
    """One connection; one request at a time."""

    def __init__(self, path, salt=b""):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.received = b""
        self.descriptors = []
        self.number = 0
        self.segments = {}
        self.call(HELLO, b"terraced" + struct.pack("<2H", 1, 1) + text(b"python") + text(salt))

    def close(self):
        self.socket.close()

    def take(self, count):
        while len(self.received) < count:
            data, descriptors, _, _ = socket.recv_fds(self.socket, 65536, 64)
            if not data:
                raise ConnectionError("the daemon has closed the connection")
            self.received += data
            self.descriptors += descriptors
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def call(self, kind, body=b""):
        self.number += 1
        self.socket.sendall(struct.pack("<IBBHQ", len(body), kind, 0, 0, self.number) + body)
        size, answer, _, status, number = struct.unpack("<IBBHQ", self.take(16))
        assert (answer, number) == (kind | 0x80, self.number)
        reply = self.take(size)
        if status:
            raise Refused(status, reply.decode())
        return reply

    def publish(self, key, rows, lease=0):
        """Publishes a chunk of one part; returns the state: 0 written, 1 was there."""
        reserve = bytes(32) + key + struct.pack("<IQI", 32, lease, 1) + ROWS
        state, reservation, size, _ = struct.unpack(
            "<B3Q", self.call(RESERVE, reserve + struct.pack("<Q", len(rows))))
        if state:
            return state
        descriptor = self.descriptors.pop(0)
        with mmap.mmap(descriptor, size) as memory:
            memory[:len(rows)] = rows
        os.close(descriptor)
        return self.call(COMMIT, struct.pack("<Q", reservation))[0]

    def find(self, *keys):
        """Returns the outcome, the lease and the number of chunks that were found."""
        reply = self.call(FIND, bytes(32) + struct.pack("<QI", 32 * len(keys), len(keys))
                          + b"".join(keys))
        outcome, lease, lists = struct.unpack_from("<BQI", reply)
        place = 13
        for _ in range(lists):
            place += 4 + 20 * struct.unpack_from("<I", reply, place)[0]
        return outcome, lease, struct.unpack_from("<I", reply, place)[0]

    def read(self, lease, chunk):
        """Returns the rows of a leased chunk."""
        reply = self.call(READ, struct.pack("<QII", lease, 1, chunk) + ROWS)
        place = 0
        for number in self.numbers(reply, place):
            del self.segments[number]
        place += 4 + 4 * struct.unpack_from("<I", reply, place)[0]
        count = struct.unpack_from("<I", reply, place)[0]
        place += 4
        for _ in range(count):
            number, size = struct.unpack_from("<IQ", reply, place)
            place += 12
            descriptor = self.descriptors.pop(0)
            self.segments[number] = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
            os.close(descriptor)
        status, number, offset, size = struct.unpack_from("<HIQQ", reply, place + 4)
        assert status == 0
        return self.segments[number][offset:offset + size]

    @staticmethod
    def numbers(reply, place):
        count = struct.unpack_from("<I", reply, place)[0]
        return struct.unpack_from(f"<{count}I", reply, place + 4)

    def counters(self):
        reply = self.call(STATS)
        counters, place = {}, 4
        for _ in range(struct.unpack_from("<I", reply)[0]):
            size = struct.unpack_from("<H", reply, place)[0]
            name = reply[place + 2:place + 2 + size].decode()
            counters[name] = struct.unpack_from("<Q", reply, place + 2 + size)[0]
            place += 10 + size
        return counters
