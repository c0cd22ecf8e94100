-- +goose Up

-- What it takes to notify members of messages that they have not read: which conversations do, who wants none, and when.

-- After how long an unread message of it makes a notification, NULL: never; and whether that shows the text.
ALTER TABLE tidings.conversation ADD COLUMN notify_after_ms bigint, ADD COLUMN preview boolean NOT NULL DEFAULT false;
ALTER TABLE tidings.conversation DROP CONSTRAINT conversation_shape;
ALTER TABLE tidings.conversation ADD CONSTRAINT conversation_shape
    CHECK (1 <= min_seq AND min_seq <= next_seq AND epoch > 1 AND recall_window_ms >= 0 AND retention_ms > 0 AND notify_after_ms > 0);

-- The body is that of the message it is about, read when the call is made. It is of neither the key nor the payload's hash: it says
-- how to show what is named there.
ALTER TABLE tidings.notification ADD COLUMN preview boolean NOT NULL DEFAULT false;

-- At which messages and recalls of a conversation with notify_after_ms somebody has to look for members who have not read. A row is
-- written in the transaction of its event and deleted when it was handled: a position in a serial number would skip one that
-- commits late, and one row for each conversation would lose a message whose sender met the row that is being deleted.
CREATE TABLE tidings.unread_due (
    conv_id  text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL, -- of the event; 0: look again, because a member was connected and had not read
    due_at   timestamptz NOT NULL,
    since_at timestamptz,     -- of seq 0: when such a member was met after something new
    upto_seq bigint,          -- of seq 0: the newest event that was due then
    PRIMARY KEY (conv_id, seq),
    CHECK (seq >= 0 AND (seq = 0) = (since_at IS NOT NULL) AND (seq = 0) = (upto_seq IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- What is due, the oldest first, whatever the conversation.
CREATE INDEX unread_due_at ON tidings.unread_due (due_at);

-- Members who want no notification of a conversation, until then; NULL: for ever. A leave ends it.
CREATE TABLE tidings.mute (
    conv_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL CHECK (tidings.is_id(user_id)),
    until   timestamptz,
    at      timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (conv_id, user_id)
);

-- When a user is not to be disturbed: every day from a minute of the day to another in their zone, over midnight when the first is the
-- later one.
CREATE TABLE tidings.quiet (
    bucket      smallint NOT NULL,
    user_id     text COLLATE "C" NOT NULL CHECK (tidings.is_id(user_id)),
    zone        text NOT NULL,
    from_minute smallint NOT NULL CHECK (from_minute BETWEEN 0 AND 1439),
    to_minute   smallint NOT NULL CHECK (to_minute BETWEEN 0 AND 1439),
    at          timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (user_id, bucket),
    CHECK (from_minute <> to_minute),
    CHECK (bucket = tidings.bucket_of(user_id))
);

-- quiet_until is the end of the quiet hours in which now_at lies, NULL when it lies in none. The wall clock of the zone decides, also on days
-- that have 23 or 25 hours: an end that the clock skips is the first instant after the gap; one that it shows twice is the first that is
-- not before now_at. A zone that this server does not know (any more) has no quiet hours.
-- +goose StatementBegin
CREATE FUNCTION tidings.quiet_until(now_at timestamptz, zone text, from_minute int, to_minute int) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
    day    constant interval := '24 hours';
    wall   timestamp;
    minute int;
    ends   timestamp;   -- by the wall clock
    utc    timestamptz; -- that, if the zone were UTC
    early  timestamptz;
    late   timestamptz;
    middle timestamptz;
BEGIN
    wall := now_at AT TIME ZONE zone;
    minute := extract(hour FROM wall) * 60 + extract(minute FROM wall);
    IF (CASE WHEN from_minute < to_minute THEN minute < from_minute OR minute >= to_minute ELSE minute < from_minute AND minute >= to_minute END) THEN
        RETURN NULL;
    END IF;
    ends := date_trunc('day', wall) + to_minute * interval '1 minute' + CASE WHEN minute < to_minute THEN interval '0' ELSE interval '1 day' END;
    utc := ends AT TIME ZONE 'UTC';
    -- The end by the offset of the day before and by that of the day after: one instant, unless the clock is changed in between.
    early := utc - (((utc - day) AT TIME ZONE zone) - (ends - day));
    late := utc - (((utc + day) AT TIME ZONE zone) - (ends + day));
    IF early > late THEN
        middle := early;
        early := late;
        late := middle;
    END IF;
    IF early AT TIME ZONE zone = ends AND early >= now_at THEN RETURN early; END IF;
    IF late AT TIME ZONE zone = ends AND late >= now_at THEN RETURN late; END IF;
    -- The clock skips the end: between the two it jumps over it.
    WHILE late - early > interval '1 second' LOOP
        middle := early + floor(extract(epoch FROM late - early) / 2) * interval '1 second';
        IF middle AT TIME ZONE zone < ends THEN early := middle; ELSE late := middle; END IF;
    END LOOP;
    RETURN late;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- send_rows as before, and for conversations with notify_after_ms it says when to look who has read. The others pay a column of the
-- row that is locked anyway.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tidings.send_rows(convs text[], places int[], senders text[], devices text[], cmids text[], bodies text[], datas text[], wait boolean)
    RETURNS SETOF tidings.sent LANGUAGE plpgsql VOLATILE
    -- Rows are found by their keys, whatever the statistics of a young table say; compiling takes longer than all of it.
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET enable_material = off SET jit = off AS $$
DECLARE
    heads   bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(convs)]); -- next_seq, NULL when it is not locked
    epochs  bigint[] := heads;
    waits   bigint[] := heads; -- notify_after_ms
    watched boolean := false;  -- one of them has it
    held    int := 0;
    busy    text[] := '{}';
    place   int := 1;
    now_at  timestamptz;
    locking refcursor;
    one     record;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'messages are sent in READ COMMITTED transactions only' USING ERRCODE = 'invalid_transaction_state';
    END IF;
    -- The sublink keeps the planner from counting the conversations: a plan for fewer than it guesses would be made anew for each call.
    IF wait THEN
        OPEN locking FOR SELECT c.conv_id, c.next_seq, c.epoch, c.notify_after_ms FROM tidings.conversation c
            WHERE c.conv_id = ANY (ARRAY(SELECT unnest(convs))) ORDER BY c.conv_id FOR NO KEY UPDATE;
    ELSE
        OPEN locking FOR SELECT c.conv_id, c.next_seq, c.epoch, c.notify_after_ms FROM tidings.conversation c
            WHERE c.conv_id = ANY (ARRAY(SELECT unnest(convs))) ORDER BY c.conv_id FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    LOOP
        FETCH locking INTO one;
        EXIT WHEN NOT FOUND;
        WHILE convs[place] COLLATE "C" < one.conv_id LOOP place := place + 1; END LOOP;
        heads[place] := one.next_seq;
        epochs[place] := one.epoch;
        IF one.notify_after_ms IS NOT NULL THEN
            waits[place] := one.notify_after_ms;
            watched := true;
        END IF;
        held := held + 1;
    END LOOP;
    CLOSE locking;
    IF held < cardinality(convs) AND NOT wait THEN
        SELECT coalesce(array_agg(c.conv_id), '{}') INTO busy FROM tidings.conversation c
          WHERE c.conv_id = ANY (ARRAY(SELECT unnest(convs))) AND heads[array_position(convs, c.conv_id)] IS NULL;
    END IF;
    now_at := clock_timestamp(); -- after the locks: times of a conversation grow with its seqs
    RETURN QUERY WITH looked AS MATERIALIZED (
        SELECT x.place, x.sender, x.device, x.cmid, x.body, x.data, x.ord, convs[x.place] AS conv, tidings.message_hash(x.body, x.data) AS hash,
               e.seq AS known, e.mid AS known_mid, e.created_at AS known_at, e.kind AS known_kind, e.request_hash AS known_hash, e.recalled_by, b.seq AS purged,
               heads[x.place] IS NOT NULL AND e.seq IS NULL AND b.seq IS NULL AND m.join_seq IS NOT NULL AS fresh
          FROM tidings.send_items(places, senders, devices, cmids, bodies, datas) x
          LEFT JOIN LATERAL (SELECT o.* FROM tidings.event o WHERE o.conv_id = convs[x.place] AND o.sender_user = x.sender AND o.cmid = x.cmid OFFSET 0) e ON true
          LEFT JOIN LATERAL (SELECT t.seq FROM tidings.tombstone t WHERE t.conv_id = convs[x.place] AND t.sender_user = x.sender AND t.cmid = x.cmid OFFSET 0) b ON true
          LEFT JOIN LATERAL (SELECT i.join_seq FROM tidings.member i WHERE i.conv_id = convs[x.place] AND i.user_id = x.sender AND i.leave_seq IS NULL OFFSET 0) m ON true
    ), numbered AS MATERIALIZED (
        SELECT l.*, CASE WHEN l.fresh THEN heads[l.place] - 1 + count(*) FILTER (WHERE l.fresh) OVER (PARTITION BY l.place ORDER BY l.ord) END AS new_seq,
               CASE WHEN l.fresh THEN gen_random_uuid() END AS new_mid,
               CASE WHEN heads[l.place] IS NULL THEN CASE WHEN l.conv = ANY (busy) THEN 'BUSY' ELSE 'NOT_MEMBER' END
                    WHEN l.known_kind <> 'msg' OR (l.known IS NOT NULL AND l.recalled_by IS NULL AND l.known_hash IS DISTINCT FROM l.hash) THEN 'IDEMPOTENCY_MISMATCH'
                    WHEN l.known IS NOT NULL OR l.fresh THEN ''
                    WHEN l.purged IS NOT NULL THEN 'ORIGINAL_EXPIRED' ELSE 'NOT_MEMBER' END AS code
          FROM looked l
    ), appended AS (
        INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, sender_device, cmid, request_hash, body, data, created_at)
        SELECT n.conv, n.new_seq, 'msg', n.new_mid, n.sender, n.device, n.cmid, n.hash, n.body, n.data, now_at FROM numbered n WHERE n.fresh
    ), advanced AS (
        UPDATE tidings.conversation c SET next_seq = g.next_seq
          FROM (SELECT n.conv, max(n.new_seq) + 1 AS next_seq FROM numbered n WHERE n.fresh GROUP BY n.conv) g
         WHERE c.conv_id = g.conv
    )
    -- A refusal tells nothing of the conversation, but one of an expired original where that stood.
    SELECT n.ord::int, n.code, CASE n.code WHEN '' THEN coalesce(n.new_seq, n.known) WHEN 'ORIGINAL_EXPIRED' THEN n.purged END,
           CASE n.code WHEN '' THEN coalesce(n.new_mid, n.known_mid) END, CASE WHEN n.code IN ('', 'ORIGINAL_EXPIRED') THEN epochs[n.place] END,
           CASE n.code WHEN '' THEN coalesce(n.known_at, now_at) END, n.code = '' AND n.known IS NOT NULL
      FROM numbered n;
    IF watched THEN
        -- What this call has appended is what lies at and behind the heads that it has locked.
        INSERT INTO tidings.unread_due (conv_id, seq, due_at)
        SELECT e.conv_id, e.seq, now_at + w.wait * interval '1 millisecond'
          FROM ROWS FROM (unnest(convs), unnest(heads), unnest(waits)) w (conv, head, wait)
         CROSS JOIN LATERAL (SELECT a.conv_id, a.seq FROM tidings.event a WHERE a.conv_id = w.conv AND a.seq >= w.head OFFSET 0) e
         WHERE w.wait IS NOT NULL;
    END IF;
END $$;
-- +goose StatementEnd

-- notify_rows as before, with preview: the body is read from the message that it is about when the call is made.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tidings.notify_rows(items json, call bytea, before int) RETURNS SETOF tidings.notified LANGUAGE plpgsql
    -- A plan that was made while a table was small would read it whole later; compiling takes longer than all of it.
    SET enable_seqscan = off SET jit = off AS $$
DECLARE
    now_at timestamptz := statement_timestamp();
    ours   uuid := (SELECT i.id FROM tidings.installation i WHERE i.one);
BEGIN
    RETURN QUERY WITH created AS (
        INSERT INTO tidings.notification AS n (id, bucket, user_id, event_key, title, body, data, category, payload_hash,
               channels, priority, max_attempts, duplicates, about_conv, about_seq, preview, not_before, expires_at, created_at)
        SELECT tidings.notification_id(call, i.bucket, before + i.ord::int), i.bucket, i."user", i.event_key, i.title, i.body, i.data, i.category,
               tidings.payload_hash(i."user", i.event_key, i.title, i.body, i.data, i.category, i.about ->> 'conv', (i.about ->> 'seq')::bigint),
               i.channels, coalesce(i.priority, 1), coalesce(i.max_attempts, 5), coalesce(i.duplicates, 'forbid'),
               i.about ->> 'conv', (i.about ->> 'seq')::bigint, coalesce(i.preview AND i.about ->> 'conv' IS NOT NULL, false), i.not_before, greatest(now_at, i.not_before) + i.ttl_s * interval '1 second', now_at
          FROM (SELECT x.*, tidings.bucket_of(x."user") AS bucket
                  FROM ROWS FROM (json_to_recordset(items) AS ("user" text, event_key text, title text, body text, data jsonb,
                           category text, channels text[], priority smallint, ttl_s bigint, not_before timestamptz,
                           max_attempts smallint, duplicates text, about jsonb, preview boolean))
                       WITH ORDINALITY AS x ("user", event_key, title, body, data, category, channels, priority, ttl_s, not_before,
                           max_attempts, duplicates, about, preview, ord)
                 ORDER BY x."user" COLLATE "C", x.event_key COLLATE "C", x.ord) i
        ON CONFLICT (user_id, event_key, bucket) DO NOTHING
        RETURNING n.id, n.bucket, n.user_id, n.channels, n.priority, n.max_attempts, n.not_before, n.payload_hash
    ), -- edge: create
    task AS (
        INSERT INTO tidings.task AS t (id, bucket, user_id, notification_id, channel, slot, priority, state, budget_left, next_attempt_at)
        SELECT tidings.task_id(c.bucket, ours, c.payload_hash, p.channel, p.slot), c.bucket, c.user_id,
               c.id, p.channel, p.slot, c.priority, 'PENDING', c.max_attempts,
               -- a microsecond apart, so that the watermark of the claims tells the tasks of a large call apart
               greatest(now_at, c.not_before) + row_number() OVER () * interval '1 microsecond'
          FROM created c
          JOIN tidings.channel_pref p ON p.user_id = c.user_id AND p.bucket = c.bucket AND p.enabled
               AND (coalesce(cardinality(c.channels), 0) = 0 OR p.channel = ANY (c.channels))
        RETURNING t.notification_id
    )
    SELECT get_byte(uuid_send(c.id), 7) * 256 + get_byte(uuid_send(c.id), 8), c.id, true, coalesce(k.tasks, 0)::int, false, false
      FROM created c
      LEFT JOIN (SELECT task.notification_id, count(*) AS tasks FROM task GROUP BY 1) k ON k.notification_id = c.id;
END $$;
-- +goose StatementEnd

-- The tasks that a provider knows by an id of its own: for receipts that name nothing else, and for people who look for one. Each finish writes
-- an entry, so it is the hash that stands in it, for half of the cost; PostgreSQL spreads partitioned tables by the same function, whose
-- values therefore stay. (A hash index would be cheaper still, but quadratic where a provider gives every message the same id.)
DROP INDEX tidings.task_provider_msg;
CREATE INDEX task_provider_msg ON tidings.task (hashtextextended(provider_msg_id, 0)) WHERE provider_msg_id IS NOT NULL;
