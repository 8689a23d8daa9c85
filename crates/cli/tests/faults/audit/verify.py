"""Checks a log or receipts of motu, from docs/audit.md alone and with nothing but Python.

    verify.py log PUBLIC_KEY < export.jsonl
    verify.py receipt PUBLIC_KEY < receipt.json

Exits with 1 and says why when something is not as it was written.
"""

import hashlib
import json
import sys

# Ed25519 (RFC 8032): the curve, and whether a signature is of a key.
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
I = pow(2, (P - 1) // 4, P)


def add(a, b):
    x1, y1, z1, t1 = a
    x2, y2, z2, t2 = b
    p, q = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    r, s = 2 * t1 * t2 * D % P, 2 * z1 * z2 % P
    e, f, g, h = q - p, s - r, s + r, q + p
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(n, point):
    sum = (0, 1, 1, 0)
    while n:
        if n & 1:
            sum = add(sum, point)
        point = add(point, point)
        n >>= 1
    return sum


def point(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * I % P
    if y >= P or (x * x - x2) % P or (x == 0 and sign):
        raise ValueError("no point of the curve")
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


BY = 4 * pow(5, P - 2, P) % P
BASE = point(BY.to_bytes(32, "little"))


def signed(key, message, signature):
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % L
    left, right = times(s, BASE), add(point(r), times(h, point(key)))
    same = lambda i: (left[i] * right[2] - right[i] * left[2]) % P == 0
    return same(0) and same(1)


# The format.


def canonical(value):
    # RFC 8785 for what is in a record: no fractions, and names that are plain ASCII.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def wrong(why):
    print(why)
    sys.exit(1)


def hash_of(record):
    without = dict(record)
    stated = without.pop("hash")
    if record["type"] == "checkpoint":
        without.pop("signature")
    found = hashlib.sha256(canonical(without)).hexdigest()
    if found != stated:
        wrong(f"record {record['seq']} does not have its hash")
    return bytes.fromhex(found)


def check_signature(checkpoint, key):
    message = b"motu audit checkpoint 1\n" + hash_of(checkpoint)
    if not signed(key, message, bytes.fromhex(checkpoint["signature"])):
        wrong(f"checkpoint {checkpoint['seq']} is not signed by the key")


def leaf(hash):
    return hashlib.sha256(b"\0" + hash).digest()


def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


def root(hashes):
    level = [leaf(hash) for hash in hashes]
    while len(level) > 1:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [node(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]


def check_receipt(receipt, key):
    if bytes.fromhex(receipt["public_key"]) != key:
        wrong("the receipt is of another key")
    found = leaf(hash_of(receipt["entry"]))
    for step in receipt["path"]:
        other = bytes.fromhex(step["hash"])
        found = node(found, other) if step["side"] == "right" else node(other, found)
    if found.hex() != receipt["checkpoint"]["root"]:
        wrong("the path does not lead to the root")
    check_signature(receipt["checkpoint"], key)


def check_log(lines, key):
    seq, prev, open, last = 0, bytes(32), [], None
    for line in lines:
        record = json.loads(line)
        if canonical(record) + b"\n" != line:
            wrong(f"the line after {seq} is not canonical")
        hash = hash_of(record)
        if record["seq"] != seq + 1 or record["prev"] != prev.hex():
            wrong(f"the chain is broken after {seq}")
        if record["type"] == "checkpoint":
            covered = (record["first"], record["count"])
            if covered != (seq + 1 - len(open), len(open)) or root(open).hex() != record["root"]:
                wrong(f"checkpoint {record['seq']} covers something else")
            check_signature(record, key)
            open = []
        else:
            open.append(hash)
        seq, prev, last = record["seq"], hash, record["type"]
    if open or last != "checkpoint":
        wrong("the end has no checkpoint")
    return seq


what, key = sys.argv[1], bytes.fromhex(sys.argv[2])
if what == "log":
    print(check_log(sys.stdin.buffer.readlines(), key), "records")
else:
    check_receipt(json.load(sys.stdin), key)
    print("signed")
