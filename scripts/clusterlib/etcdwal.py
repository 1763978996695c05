"""Reads the write-ahead log of one etcd member, without etcd: what this member holds by itself.

Format (etcd 3.4, wal/encoder.go, raftpb): a file is a row of frames. A frame begins with eight bytes, little-endian:
the lower 56 bits are the length of a record, the highest byte is 0x80 + padding. A record is a protobuf message of
type, CRC-32C and data; the CRC goes on from record to record, and a file begins with the CRC of the one before. A
length of 0 ends what was written, because segments are allocated ahead.
"""

from pathlib import Path

ENTRY, CRC = 2, 4
NORMAL = 0
FIELD_PUT = 4
FIELD_V2_METHOD = 2
POLYNOMIAL = 0x82F63B78


def make_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = make_table()


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    table = TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Damaged(Exception):
    """The log holds bytes that etcd cannot have written so."""


def varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Damaged("a number does not end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """The fields of a protobuf message, by number; the last one of each number counts."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            if at > len(data):
                raise Damaged("a field is longer than its message")
        else:
            raise Damaged(f"a field of wire type {key & 7}")
        found[key >> 3] = value
    return found


def records(data):
    """Type, CRC and data of each whole record; what is cut off at the end is left out, as etcd does after a crash."""
    at = 0
    while at + 8 <= len(data):
        frame = int.from_bytes(data[at:at + 8], "little")
        if frame == 0:
            return
        length = frame & (1 << 56) - 1
        padding = frame >> 56 & 0x7 if frame >> 63 else 0
        if at + 8 + length + padding > len(data):
            return
        record = fields(data[at + 8:at + 8 + length])
        yield at, record.get(1, 0), record.get(2, 0), record.get(3, b"")
        at += 8 + length + padding


def segments(directory):
    """The files of a log, in order."""
    return sorted(Path(directory).glob("*.wal"))


def used_bytes(path):
    """Bytes of a segment up to the last record."""
    data, end = path.read_bytes(), 0
    for at, *_ in records(data):
        end = at + 8 + (int.from_bytes(data[at:at + 8], "little") & (1 << 56) - 1)
    return end


def entries(directory):
    """The entries of the log by index; one that a later leader replaced is left out, with all behind it."""
    found, crc = {}, 0
    for path in segments(directory):
        for at, kind, sum_of_record, data in records(path.read_bytes()):
            if kind == CRC:
                if crc not in (0, sum_of_record):
                    raise Damaged(f"{path.name} at {at}: the file before ends with another CRC")
                crc = sum_of_record
                continue
            crc = crc32c(data, crc)
            if crc != sum_of_record:
                raise Damaged(f"{path.name} at {at}: wrong CRC")
            if kind == ENTRY:
                entry = fields(data)
                index = entry.get(3, 0)
                later = index
                while later in found:
                    del found[later]
                    later += 1
                found[index] = entry
    return found


def puts(directory):
    """Every key that the log puts, with its last value."""
    found = {}
    for _, entry in sorted(entries(directory).items()):
        if entry.get(1, NORMAL) != NORMAL or not entry.get(4):
            continue
        request = fields(entry[4])
        # A request of the second API (a member announces itself so) has its method there, and a string as field 4.
        if FIELD_V2_METHOD not in request and FIELD_PUT in request:
            put = fields(request[FIELD_PUT])
            found[bytes(put.get(1, b""))] = bytes(put.get(2, b""))
    return found
