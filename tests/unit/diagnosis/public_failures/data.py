"""Files that are not there, not whole, or not for everybody."""

from __future__ import annotations

from tests.unit.diagnosis.public_failures.row import NOT_THE_CODE, PublicFailure, rank_1

ROWS = (
    rank_1("a file that is not there", 'rows = open("/data/train.csv")\n',
           (r"No such file or directory: '/data/train\.csv'",), "rows = open",
           (r"path|mount|--volume",), (NOT_THE_CODE,)),
    PublicFailure("an archive that is none", """\
import gzip
rows = gzip.open("shard.gz").read()
""", (r"Not a gzipped file",), "rows = gzip", (r"shard\.gz|file|again|whole|damaged",),
           (NOT_THE_CODE,), beside={"shard.gz": "<html>404</html>"}),
    PublicFailure("an archive that was cut off", """\
import zipfile
images = zipfile.ZipFile("images.zip")
""", (r"File is not a zip file",), "images = zip", (r"images\.zip|file|again|whole|damaged",),
           (NOT_THE_CODE,), beside={"images.zip": "PK\x03\x04 cut off"}),
    PublicFailure("a bad line of JSON", """\
import json
for line in open("rows.jsonl"):
    row = json.loads(line)
""", (r"JSONDecodeError: Expecting",), "row = json", (r"train\.py, line 3|JSON",),
           beside={"rows.jsonl": '{"a": 1}\n{"a": 2\n'}),
    PublicFailure("an empty dataset", """\
from torch.utils.data import DataLoader
images = []
loader = DataLoader(images, batch_size=4, shuffle=True)
""", (r"num_samples=0", r"empty|no samples|nothing in"), "loader = ", (r"data|path|folder",),
           (NOT_THE_CODE,)),
    PublicFailure("a file of another user", """\
rows = open("secret.csv").read()
""", (r"Permission denied: 'secret\.csv'", r"user"), "rows = open", (r"chmod|rights|runAsUser",),
           (NOT_THE_CODE,), beside={"secret.csv": "1\n"},
           pod={"securityContext": {"runAsUser": 65534}}),
    PublicFailure("a file that is not text", """\
for line in open("tokens.txt", encoding="ascii"):
    pass
""", (r"UnicodeDecodeError: 'ascii' codec can't decode byte",), "for line",
           beside={"tokens.txt": "größe\n"}),
    PublicFailure("a column that is not there", """\
import csv
for row in csv.DictReader(open("rows.csv")):
    label = row["label"]
""", (r"KeyError: 'label'",), "label = row", beside={"rows.csv": "text,lable\na,1\n"}),
    PublicFailure("a disk that fails", """\
import errno, os
def read(path):
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
read("/data/shard-3.tar")
""", (r"Input/output error: '/data/shard-3\.tar'",), "raise OSError", (r"disk|storage|dmesg|node",),
           (NOT_THE_CODE,)),
    PublicFailure("a file that is cut off, of numpy", """\
import numpy as np
tokens = np.load("tokens.npy")
""", (r"No data left in file",), "tokens = np", (r"tokens\.npy|file|again|whole|damaged",),
           (NOT_THE_CODE,), beside={"tokens.npy": ""}),
)  # fmt: skip
