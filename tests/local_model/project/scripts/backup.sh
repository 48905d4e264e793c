#!/bin/sh
# Copy the database to the backup folder.
set -e
target="${LARDER_BACKUP_DIR:-/var/backups/larder}"
mkdir -p "$target"
cp "${LARDER_DB_FILE:-larder.db}" "$target/$(date +%F).db"
