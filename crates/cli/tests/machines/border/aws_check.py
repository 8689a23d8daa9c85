# On the host: counts the requests of a log whose signature was made with a key.
# usage: aws_check.py LIBRARY KEY LOG

import json
import sys

library, key, log = sys.argv[1:]
sys.path.insert(0, library)

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


def right(line):
    headers = line["headers"]
    words = dict(
        part.strip().split("=", 1)
        for part in headers["authorization"].split(" ", 1)[1].split(",")
    )
    _, _, region, service, _ = words["Credential"].split("/")
    signed = {name: headers[name] for name in words["SignedHeaders"].split(";")}
    request = AWSRequest(
        method=line["method"],
        url="https://" + headers["host"] + line["url"],
        headers=signed,
        data=line["body"].encode(),
    )
    kind = S3SigV4Auth if service == "s3" else SigV4Auth
    auth = kind(Credentials("AKIDEXAMPLE", key), service, region)
    request.context["timestamp"] = headers["x-amz-date"]
    text = auth.string_to_sign(request, auth.canonical_request(request))
    return auth.signature(text, request) == words["Signature"]


lines = [json.loads(line) for line in open(log)]
print(sum(right(line) for line in lines), "of", len(lines))
