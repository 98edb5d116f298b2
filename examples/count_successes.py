#!/usr/bin/env python3
"""Runs a command and counts the words `check success` it prints: as many as its first argument.

Lines are not counted, since the output of several processes can share one.
"""
import subprocess
import sys

expected, command = int(sys.argv[1]), sys.argv[2:]
result = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=100)
sys.stdout.write(result.stdout)
found = result.stdout.count("check success")
if result.returncode != 0 or found != expected or "check fail" in result.stdout:
    sys.exit(f"exit status {result.returncode}, {found} times `check success` instead of {expected}")
