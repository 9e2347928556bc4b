"""Small weights as the libraries write them: packed by the library, decoded by the library.

Not part of the test suite: the libraries are heavy and pin each other. In an environment of its own,

    pip install -e '.[crosscheck]'
    pip install --no-deps auto-round==0.16.1 gptqmodel==7.7.0
    python -m tests.formats.crosscheck --write

writes goldens/formats/*.json; without --write it compares them with what the libraries give now. The suite
(tests/formats/test_libraries.py) holds our formats against these files. Nothing here imports dgpp.
"""
