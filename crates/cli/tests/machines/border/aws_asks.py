# Inside of a sandbox: asks two services of AWS in the ways that their client has.
# usage: aws_asks.py ENDPOINT

import os
import sys

sys.path.insert(0, "/workspace")

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError


def client(service, **more):
    return botocore.session.get_session().create_client(
        service,
        region_name="eu-west-1",
        endpoint_url=sys.argv[1],
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key=os.environ["SECRET_KEY"],
        config=Config(retries={"total_max_attempts": 1}, **more),
    )


def ask(call, **arguments):
    try:
        call(**arguments)
    except (ResponseParserError, ValueError):
        pass  # The host answers with a word that is no answer of AWS,
    except ClientError as error:
        if error.response["Error"]["Code"] != "500":
            raise  # which this client takes for a failure of the host's.


files = client("s3", s3={"addressing_style": "path"})
ask(files.put_object, Bucket="bucket", Key="a name/of ü+file.txt", Body=b"hello")
ask(files.list_objects_v2, Bucket="bucket", Prefix="a name/", Delimiter="/")
tables = client("dynamodb")
ask(tables.list_tables, Limit=5)
ask(tables.get_item, TableName="t", Key={"id": {"S": "x"}})
