"""Settings for all tests."""

from lengthwise import machine

machine.wait_without_spinning()  # before any test loads torch
