"""Generator of everything that follows from the vendor's header and our specification of it.

The pipeline is: read the headers (`headers`), read the rows of `remoting/apispec` (`spec`) and the
messages of `remoting/protocol` (`messages`), join and check them (`passes`), write text
(`emit`, templates in `templates/`). `python -m remoting.codegen --help` runs it; README.md says how
to add a driver function.
"""
