"""`python -m hierattn`: the command line."""

from hierattn.command_line.app import run

if __name__ == "__main__":
    run()
