"""`python -m remoting.codegen`: see `cli`."""

from remoting.codegen.cli import main

if __name__ == "__main__":
    main()
