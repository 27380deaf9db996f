#!/bin/sh
# Checks of style. Usage: lint.sh fast|full
set -u
luacheck -q --no-color --no-cache lua spec .busted
