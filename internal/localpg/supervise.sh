# Runs one PostgreSQL server and ends it when the process that asked for it ends.
#
# Arguments: the directory with the server programs; the place of the server, an absolute directory in which `data` is
# the data directory; what to do with the place when the parent is gone, "keep" or "remove".
# Environment: CONF and HBA, the texts of postgresql.conf and pg_hba.conf; INITDB, more words for initdb; SUPERVISE, this
# script.
# Standard input: a pipe whose other end only the parent holds. A line on it names a signal for the server; its end
# means that the parent no longer exists, however it went.
# Descriptor 3: the locked file `lock`. It stays open here and in every process of the server, so that the lock is
# free exactly when the last of them has ended.
umask 077
exec 4<&0 </dev/null
bin=$1 place=$2 orphan=$3
cd "$place" || exit 1
conf=$CONF hba=$HBA
unset SUPERVISE CONF HBA
rm -f orphaned # left by an earlier run

# Renamed only when complete, so that an interrupted initdb leaves nothing that looks like a database.
if [ ! -d data ]; then
	rm -rf data.new
	"$bin/initdb" -D data.new -U postgres -A scram-sha-256 --pwfile=password -E UTF8 --locale=C \
		--no-instructions $INITDB >initdb.log 2>&1 4<&- || { cat initdb.log >&2; exit 1; }
	rm -f initdb.log
	mv data.new data || exit 1
fi

# lz4 where the build has it (from version 15 on, and only when configured so).
wal=on
"$bin/postgres" -D data -c config_file=/dev/null -c wal_compression=lz4 -C wal_compression >/dev/null 2>&1 4<&- && wal=lz4
printf 'wal_compression = %s\n%s' "$wal" "$conf" >data/postgresql.conf || exit 1
printf '%s' "$hba" >data/pg_hba.conf || exit 1

"$bin/postgres" -D "$place/data" 4<&- &
server=$!

(
	while read -r signal <&4; do
		kill -s "$signal" "$server"
	done
	: >orphaned
	signal=INT
	[ "$orphan" = keep ] || signal=QUIT # what is removed next need not be flushed
	# Again every second: a signal that came before the server had installed its handlers is lost.
	tries=0
	while kill -s "$signal" "$server" 2>/dev/null; do
		tries=$((tries + 1))
		[ "$tries" -lt 60 ] || signal=QUIT
		[ "$tries" -lt 90 ] || signal=KILL
		sleep 1
	done
) 3<&- & # it may outlive a supervisor that is killed, and must not keep the lock
watcher=$!

wait "$server"
status=$?
exec 4<&-
if [ -e orphaned ]; then
	wait "$watcher"
else
	kill -s KILL "$watcher"
	wait "$watcher"
fi 2>/dev/null
[ ! -e orphaned ] || [ "$orphan" = keep ] || { cd / && rm -rf "$place"; }
exit "$status"
