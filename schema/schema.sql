-- Made from the migrations by `go test ./schema -update`. For people; it is never run.

CREATE SCHEMA tidings;

CREATE TYPE tidings.notified AS (
	"position" integer,
	id uuid,
	created boolean,
	tasks integer,
	payload_differs boolean,
	expired boolean
);

CREATE TYPE tidings.sent AS (
	"position" integer,
	code text,
	seq bigint,
	mid uuid,
	epoch bigint,
	at timestamp with time zone,
	dup boolean
);

CREATE FUNCTION tidings.bucket_of(user_id text) RETURNS smallint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (get_byte(sha256(convert_to(user_id, 'UTF8'::name)), 0))::smallint;

CREATE FUNCTION tidings.first_task_id(bucket smallint, payload_hash bytea) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (encode((set_byte(substr(payload_hash, 1, 8), 0, (bucket)::integer) || '\x0000000000000000'::bytea), 'hex'::text))::uuid;

CREATE FUNCTION tidings.is_id(t text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (((octet_length(t) >= 1) AND (octet_length(t) <= 128)) AND ((t COLLATE "C") ~ '^[!-"$&-.0->@-~]+$'::text));

CREATE FUNCTION tidings.last_task_id(bucket smallint, payload_hash bytea) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (encode((set_byte(substr(payload_hash, 1, 8), 0, (bucket)::integer) || '\xffffffffffffffff'::bytea), 'hex'::text))::uuid;

CREATE FUNCTION tidings.message_hash(body text, data text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256(convert_to(concat(octet_length(body), ',', body, data), 'UTF8'::name));

CREATE FUNCTION tidings.new_id(bucket smallint) RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    RETURN (encode(OVERLAY(set_byte(uuid_send(gen_random_uuid()), 0, (bucket)::integer) PLACING substr(int8send(((date_part('epoch'::text, statement_timestamp()) * (1000)::double precision))::bigint), 3) FROM 2), 'hex'::text))::uuid;

CREATE FUNCTION tidings.notification_id(call bytea, bucket smallint, at integer) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (encode(OVERLAY(set_byte(call, 0, (bucket)::integer) PLACING int2send((at)::smallint) FROM 8), 'hex'::text))::uuid;

CREATE FUNCTION tidings.notify_batch(items json, many integer) RETURNS SETOF tidings.notified
    LANGUAGE plpgsql
    AS $$
DECLARE
    fresh   boolean := current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
    -- The ids of one call: the milliseconds and 56 random bits, with the bucket before and the position between.
    call    bytea := overlay(uuid_send(gen_random_uuid()) PLACING substr(int8send((date_part('epoch', statement_timestamp()) * 1000)::bigint), 3) FROM 2);
    made    int := 0; -- were created
    missing int[];    -- were not, and are not answered yet
    gone    int[];    -- of those, the ones whose original has been deleted meanwhile
    at      int;
    one     tidings.notified;
BEGIN
    IF fresh THEN
        RETURN QUERY SELECT * FROM tidings.notify_rows(items, call, 0);
        GET DIAGNOSTICS made = ROW_COUNT;
    ELSE
        BEGIN
            RETURN QUERY SELECT * FROM tidings.notify_rows(items, call, 0);
            GET DIAGNOSTICS made = ROW_COUNT;
        EXCEPTION WHEN serialization_failure THEN
            -- Some original is invisible, and nothing of this call was written or answered: the others go one by one.
            FOR at IN 1 .. many LOOP
                BEGIN
                    RETURN QUERY SELECT * FROM tidings.notify_rows(json_build_array(items -> (at - 1)), call, at - 1);
                    IF FOUND THEN made := made + 1; END IF;
                EXCEPTION WHEN serialization_failure THEN -- is answered without id below
                END;
            END LOOP;
        END;
    END IF;
    FOR tries IN 1 .. 3 LOOP
        EXIT WHEN made = many OR tries > 1 AND cardinality(missing) = 0;
        gone := '{}';
        -- A new statement sees what the insert ran into. What this call has created carries the id that it would give.
        FOR one IN
            SELECT i.ord::int, n.id, false,
                   (SELECT count(*) FROM tidings.task t WHERE t.id BETWEEN tidings.first_task_id(n.bucket, n.payload_hash) AND tidings.last_task_id(n.bucket, n.payload_hash)
                       AND t.bucket = n.bucket AND t.notification_id = n.id)::int,
                   n.purged_at IS NULL AND n.payload_hash IS DISTINCT FROM tidings.payload_hash(i."user", i.event_key, i.title, i.body, i.data, i.category,
                       i.about ->> 'conv', (i.about ->> 'seq')::bigint),
                   n.purged_at IS NOT NULL
              FROM (SELECT x.*, tidings.bucket_of(x."user") AS bucket
                      FROM ROWS FROM (json_to_recordset(items) AS ("user" text, event_key text, title text, body text, data jsonb,
                               category text, about jsonb)) WITH ORDINALITY AS x ("user", event_key, title, body, data, category, about, ord)) i
              LEFT JOIN tidings.notification n ON n.user_id = i."user" AND n.event_key = i.event_key AND n.bucket = i.bucket
             WHERE CASE WHEN missing IS NULL THEN n.id IS DISTINCT FROM tidings.notification_id(call, i.bucket, i.ord::int) ELSE i.ord = ANY (missing) END
        LOOP
            IF one.id IS NULL AND fresh AND tries < 3 THEN
                gone := gone || one.position;
            ELSE
                RETURN NEXT one;
            END IF;
        END LOOP;
        missing := '{}';
        -- The tombstone that was in the way was deleted between the two statements: submit those again.
        FOREACH at IN ARRAY gone LOOP
            RETURN QUERY SELECT * FROM tidings.notify_rows(json_build_array(items -> (at - 1)), call, at - 1);
            IF NOT FOUND THEN missing := missing || at; END IF;
        END LOOP;
    END LOOP;
END $$;

CREATE FUNCTION tidings.notify_rows(items json, call bytea, before integer) RETURNS SETOF tidings.notified
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION tidings.notify_v1(input json) RETURNS json
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN (SELECT coalesce(json_agg(json_build_object('id', a.id, 'created', a.created, 'tasks', a.tasks,
                                                       'payload_differs', a.payload_differs, 'expired', a.expired) ORDER BY a.position), '[]')
              FROM (SELECT CASE json_typeof(input) WHEN 'array' THEN input ELSE json_build_array(input) END AS items) i
             CROSS JOIN tidings.notify_batch(i.items, json_array_length(i.items)) a);
END $$;

CREATE FUNCTION tidings.on_log(known oid) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    IF known <> 'tidings.event'::regclass::oid THEN
        RAISE EXCEPTION 'the log was replaced' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN true;
END $$;

CREATE FUNCTION tidings.payload_hash(user_id text, event_key text, title text, body text, data jsonb, category text, about_conv text, about_seq bigint) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256(convert_to(concat(user_id, '/', event_key, '/', COALESCE(octet_length(title), '-1'::integer), ',', COALESCE(octet_length(body), '-1'::integer), ',', COALESCE(octet_length((data)::text), '-1'::integer), ',', COALESCE(octet_length(category), '-1'::integer), ';', title, body, data, category, about_conv, '/', about_seq), 'UTF8'::name));

CREATE FUNCTION tidings.post_v1(input json) RETURNS json
    LANGUAGE plpgsql
    AS $$
DECLARE
    item    record;
    one     tidings.sent;
    wrong   text;
    answers json[] := '{}';
BEGIN
    IF json_typeof(input) <> 'array' THEN input := json_build_array(input); END IF;
    IF json_array_length(input) > 1 THEN
        -- All locks first, in one order, so that two calls cannot deadlock.
        PERFORM c.conv_id FROM tidings.conversation c
          WHERE c.conv_id = ANY (ARRAY(SELECT x ->> 'conv' FROM json_array_elements(input) x)) ORDER BY c.conv_id FOR NO KEY UPDATE;
    END IF;
    FOR item IN SELECT * FROM json_to_recordset(input) AS x (conv text, sender text, device text, cmid text, body text, data json) LOOP
        wrong := CASE
            WHEN tidings.is_id(item.conv) IS NOT TRUE THEN 'message_conv_is_an_id'
            WHEN tidings.is_id(item.sender) IS NOT TRUE THEN 'message_sender_is_an_id'
            WHEN NOT tidings.is_id(item.device) THEN 'message_device_is_an_id'
            WHEN tidings.is_id(item.cmid) IS NOT TRUE THEN 'message_cmid_is_an_id'
            WHEN (octet_length(item.body) <= 16384) IS NOT TRUE THEN 'message_body_too_long'
            -- jsonb refuses what json lets pass and no receiver could read: U+0000 and half a surrogate pair
            WHEN octet_length(item.data::text) > 8192 OR jsonb_typeof(item.data::jsonb) <> 'object' THEN 'message_data_is_an_object' END;
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION 'the message violates %', wrong USING ERRCODE = 'check_violation', CONSTRAINT = wrong;
        END IF;
        SELECT * INTO one FROM tidings.send_rows(ARRAY[item.conv], ARRAY[1], ARRAY[item.sender], ARRAY[item.device], ARRAY[item.cmid], ARRAY[item.body],
            ARRAY[item.data::text], true);
        IF one.code = '' AND NOT one.dup THEN
            INSERT INTO tidings.posted (conv_id, seq) VALUES (item.conv, one.seq);
        END IF;
        answers := answers || json_strip_nulls(json_build_object('code', nullif(one.code, ''), 'seq', one.seq, 'mid', one.mid,
            'epoch', one.epoch, 'at', floor(extract(epoch FROM one.at) * 1000)::bigint, 'dup', one.dup));
    END LOOP;
    RETURN array_to_json(answers);
END $$;

CREATE FUNCTION tidings.quiet_until(now_at timestamp with time zone, zone text, from_minute integer, to_minute integer) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION tidings.send_items(places integer[], senders text[], devices text[], cmids text[], bodies text[], datas text[]) RETURNS TABLE(place integer, sender text, device text, cmid text, body text, data text, ord bigint)
    LANGUAGE plpgsql ROWS 1
    AS $$
BEGIN
    RETURN QUERY SELECT * FROM ROWS FROM (unnest(places), unnest(senders), unnest(devices), unnest(cmids), unnest(bodies), unnest(datas)) WITH ORDINALITY;
END $$;

CREATE FUNCTION tidings.send_rows(convs text[], places integer[], senders text[], devices text[], cmids text[], bodies text[], datas text[], wait boolean) RETURNS SETOF tidings.sent
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION tidings.task_id(bucket smallint, installation uuid, payload_hash bytea, channel text, slot text) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (encode((set_byte(substr(payload_hash, 1, 8), 0, (bucket)::integer) || substr(sha256((convert_to(concat(installation, '/', channel, '/', slot, '/'), 'UTF8'::name) || payload_hash)), 1, 8)), 'hex'::text))::uuid;

CREATE TABLE tidings.api_key (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT api_key_hash_check CHECK ((octet_length(hash) = 32))
);

CREATE TABLE tidings.attempt (
    bucket smallint NOT NULL,
    task_id uuid NOT NULL,
    n integer NOT NULL,
    token uuid,
    action text NOT NULL,
    worker text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    outcome text,
    detail text,
    provider_msg_id text,
    late_outcome text,
    late_detail text,
    late_at timestamp with time zone,
    CONSTRAINT attempt_action_check CHECK ((action = ANY (ARRAY['SEND'::text, 'QUERY'::text, 'NONE'::text]))),
    CONSTRAINT attempt_check CHECK ((bucket = get_byte(uuid_send(task_id), 0))),
    CONSTRAINT attempt_check1 CHECK (((token IS NULL) = (action = 'NONE'::text))),
    CONSTRAINT attempt_check2 CHECK (((outcome IS NULL) = (finished_at IS NULL))),
    CONSTRAINT attempt_check3 CHECK (((late_outcome IS NULL) OR (outcome IS NOT NULL))),
    CONSTRAINT attempt_outcome CHECK ((outcome = ANY (ARRAY['ACCEPTED'::text, 'ACCEPTED_REPLAY'::text, 'QUERY_FOUND'::text, 'QUERY_NOT_FOUND'::text, 'QUERY_FAILED'::text, 'TIMEOUT'::text, 'IO_ERROR'::text, 'HTTP_5XX'::text, 'REJECTED'::text, 'THROTTLED'::text, 'NOT_SENT'::text, 'LEASE_EXPIRED'::text, 'PREF_DISABLED'::text, 'PREF_DISABLED_UNCERTAIN'::text, 'TTL_EXPIRED'::text, 'TTL_EXPIRED_UNCERTAIN'::text, 'SOURCE_GONE'::text, 'SOURCE_GONE_UNCERTAIN'::text, 'CANCELLED'::text, 'CANCELLED_UNCERTAIN'::text, 'RECOVERED_UNCERTAIN'::text, 'RECEIPT'::text, 'MANUAL_SENT'::text, 'MANUAL_FAILED'::text, 'MANUAL_RESEND'::text])))
)
WITH (fillfactor='55', autovacuum_analyze_scale_factor='0.2', autovacuum_analyze_threshold='50000', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.channel_pref (
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    channel text NOT NULL COLLATE pg_catalog."C",
    slot text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    address text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    updated_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT channel_pref_address_check CHECK (((octet_length(address) >= 1) AND (octet_length(address) <= 4096))),
    CONSTRAINT channel_pref_channel_check CHECK ((((octet_length(channel) >= 1) AND (octet_length(channel) <= 128)) AND (channel ~ '^[!-"$&-.0->@-~]+$'::text))),
    CONSTRAINT channel_pref_check CHECK ((bucket = get_byte(sha256(convert_to(user_id, 'UTF8'::name)), 0))),
    CONSTRAINT channel_pref_slot_check CHECK (((slot = ''::text) OR (((octet_length(slot) >= 1) AND (octet_length(slot) <= 128)) AND (slot ~ '^[!-"$&-.0->@-~]+$'::text)))),
    CONSTRAINT channel_pref_user_id_check CHECK ((((octet_length(user_id) >= 1) AND (octet_length(user_id) <= 128)) AND (user_id ~ '^[!-"$&-.0->@-~]+$'::text)))
);

CREATE TABLE tidings.channel_state (
    channel text NOT NULL COLLATE pg_catalog."C",
    paused_until timestamp with time zone NOT NULL,
    reason text NOT NULL,
    by text NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE tidings.conversation (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    next_seq bigint DEFAULT 1 NOT NULL,
    min_seq bigint DEFAULT 1 NOT NULL,
    epoch bigint NOT NULL,
    recall_window_ms bigint DEFAULT 120000 NOT NULL,
    retention_ms bigint,
    created_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    notify_after_ms bigint,
    preview boolean DEFAULT false NOT NULL,
    CONSTRAINT conversation_shape CHECK (((1 <= min_seq) AND (min_seq <= next_seq) AND (epoch > 1) AND (recall_window_ms >= 0) AND (retention_ms > 0) AND (notify_after_ms > 0)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.delivered (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    device_id text NOT NULL COLLATE pg_catalog."C",
    install_no bigint NOT NULL,
    seq bigint NOT NULL,
    CONSTRAINT delivered_seq_check CHECK ((seq >= 0))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.device (
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    device_id text NOT NULL COLLATE pg_catalog."C",
    install_id text NOT NULL COLLATE pg_catalog."C",
    install_no bigint DEFAULT 1 NOT NULL,
    former text[] DEFAULT '{}'::text[] NOT NULL COLLATE pg_catalog."C",
    connects bigint DEFAULT 0 NOT NULL,
    seen_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT device_check CHECK ((bucket = get_byte(sha256(convert_to(user_id, 'UTF8'::name)), 0))),
    CONSTRAINT device_device_is_an_id CHECK ((((octet_length(device_id) >= 1) AND (octet_length(device_id) <= 128)) AND (device_id ~ '^[!-"$&-.0->@-~]+$'::text))),
    CONSTRAINT device_install_is_an_id CHECK ((((octet_length(install_id) >= 1) AND (octet_length(install_id) <= 128)) AND (install_id ~ '^[!-"$&-.0->@-~]+$'::text))),
    CONSTRAINT device_user_is_an_id CHECK ((((octet_length(user_id) >= 1) AND (octet_length(user_id) <= 128)) AND (user_id ~ '^[!-"$&-.0->@-~]+$'::text)))
)
WITH (fillfactor='70');

CREATE TABLE tidings.event (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    mid uuid,
    sender_user text NOT NULL COLLATE pg_catalog."C",
    sender_device text COLLATE pg_catalog."C",
    actor_user text COLLATE pg_catalog."C",
    cmid text COLLATE pg_catalog."C",
    request_hash bytea,
    body text,
    data text,
    target_seq bigint,
    recalled_by bigint,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT event_shape CHECK (
CASE kind
    WHEN 'msg'::text THEN ((mid IS NOT NULL) AND (cmid IS NOT NULL) AND ((recalled_by IS NULL) OR ((body IS NULL) AND (data IS NULL) AND (request_hash IS NULL))))
    WHEN 'recall'::text THEN ((target_seq IS NOT NULL) AND (body IS NULL) AND (data IS NULL) AND (recalled_by IS NULL))
    ELSE ((kind = ANY (ARRAY['join'::text, 'leave'::text])) AND (body IS NULL) AND (data IS NULL) AND (recalled_by IS NULL))
END)
)
WITH (autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.gateway (
    gateway_id text NOT NULL COLLATE pg_catalog."C",
    started_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    CONSTRAINT gateway_gateway_id_check CHECK ((((octet_length(gateway_id) >= 1) AND (octet_length(gateway_id) <= 128)) AND (gateway_id ~ '^[!-"$&-.0->@-~]+$'::text)))
)
WITH (fillfactor='50');

CREATE TABLE tidings.gone (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    marked boolean DEFAULT false NOT NULL,
    CONSTRAINT gone_check CHECK (((why = ANY (ARRAY['leave'::text, 'read'::text])) OR ((why = 'recall'::text) AND (user_id = ''::text))))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.installation (
    one boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT installation_one_check CHECK (one)
);

CREATE TABLE tidings.lineage (
    node text NOT NULL,
    system_identifier numeric NOT NULL,
    timeline bigint NOT NULL,
    lsn pg_lsn NOT NULL,
    database_oid oid NOT NULL,
    log_oid oid NOT NULL,
    generation bigint NOT NULL,
    recorded_at timestamp with time zone NOT NULL,
    CONSTRAINT lineage_generation_check CHECK (((generation > 1) AND (generation < '9007199254740992'::bigint)))
);

CREATE TABLE tidings.member (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    join_seq bigint NOT NULL,
    leave_seq bigint,
    CONSTRAINT member_check CHECK ((leave_seq >= join_seq)),
    CONSTRAINT member_join_seq_check CHECK ((join_seq >= 1)),
    CONSTRAINT member_user_is_an_id CHECK ((((octet_length(user_id) >= 1) AND (octet_length(user_id) <= 128)) AND (user_id ~ '^[!-"$&-.0->@-~]+$'::text)))
);

CREATE TABLE tidings.migration (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);

ALTER TABLE tidings.migration ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME tidings.migration_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE tidings.mute (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    until timestamp with time zone,
    at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT mute_user_id_check CHECK ((((octet_length(user_id) >= 1) AND (octet_length(user_id) <= 128)) AND (user_id ~ '^[!-"$&-.0->@-~]+$'::text)))
);

CREATE TABLE tidings.notification (
    id uuid NOT NULL,
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    event_key text NOT NULL COLLATE pg_catalog."C",
    title text,
    body text,
    data jsonb,
    category text COLLATE pg_catalog."C",
    payload_hash bytea,
    channels text[],
    priority smallint NOT NULL,
    max_attempts smallint NOT NULL,
    duplicates text NOT NULL,
    about_conv text COLLATE pg_catalog."C",
    about_seq bigint,
    about_gone_at timestamp with time zone,
    not_before timestamp with time zone,
    expires_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    cancelled_at timestamp with time zone,
    purged_at timestamp with time zone,
    erased_at timestamp with time zone,
    preview boolean DEFAULT false NOT NULL,
    CONSTRAINT notification_about_conv_is_an_id CHECK ((((octet_length(about_conv) >= 1) AND (octet_length(about_conv) <= 128)) AND (about_conv ~ '^[!-"$&-.0->@-~]+$'::text))),
    CONSTRAINT notification_about_seq_out_of_range CHECK ((about_seq >= 1)),
    CONSTRAINT notification_body_too_long CHECK ((octet_length(body) <= 16384)),
    CONSTRAINT notification_category_is_an_id CHECK ((((octet_length(category) >= 1) AND (octet_length(category) <= 128)) AND (category ~ '^[!-"$&-.0->@-~]+$'::text))),
    CONSTRAINT notification_check CHECK ((bucket = get_byte(uuid_send(id), 0))),
    CONSTRAINT notification_check1 CHECK (((about_conv IS NULL) = (about_seq IS NULL))),
    CONSTRAINT notification_check2 CHECK (((payload_hash IS NULL) = (purged_at IS NOT NULL))),
    CONSTRAINT notification_data_is_an_object CHECK (((jsonb_typeof(data) = 'object'::text) AND (octet_length((data)::text) <= 16384))),
    CONSTRAINT notification_duplicates_unknown CHECK ((duplicates = ANY (ARRAY['forbid'::text, 'allow'::text]))),
    CONSTRAINT notification_emptied CHECK ((((purged_at IS NULL) OR (channels IS NULL)) AND ((COALESCE(purged_at, erased_at) IS NULL) OR ((title IS NULL) AND (body IS NULL) AND (data IS NULL))))),
    CONSTRAINT notification_event_key_is_an_id CHECK ((((octet_length(event_key) >= 1) AND (octet_length(event_key) <= 128)) AND (event_key ~ '^[!-"$&-.0->@-~]+$'::text))),
    CONSTRAINT notification_max_attempts_out_of_range CHECK (((max_attempts >= 1) AND (max_attempts <= 100))),
    CONSTRAINT notification_priority_unknown CHECK (((priority >= 0) AND (priority <= 2))),
    CONSTRAINT notification_title_too_long CHECK ((octet_length(title) <= 1024)),
    CONSTRAINT notification_ttl_out_of_range CHECK (((expires_at > created_at) AND (expires_at < (created_at + '800 days'::interval)))),
    CONSTRAINT notification_user_is_an_id CHECK ((((octet_length(user_id) >= 1) AND (octet_length(user_id) <= 128)) AND (user_id ~ '^[!-"$&-.0->@-~]+$'::text)))
);

CREATE TABLE tidings.optout (
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    category text NOT NULL COLLATE pg_catalog."C",
    channel text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT optout_category_check CHECK ((((octet_length(category) >= 1) AND (octet_length(category) <= 128)) AND (category ~ '^[!-"$&-.0->@-~]+$'::text))),
    CONSTRAINT optout_channel_check CHECK (((channel = ''::text) OR (((octet_length(channel) >= 1) AND (octet_length(channel) <= 128)) AND (channel ~ '^[!-"$&-.0->@-~]+$'::text)))),
    CONSTRAINT optout_check CHECK ((bucket = get_byte(sha256(convert_to(user_id, 'UTF8'::name)), 0))),
    CONSTRAINT optout_user_id_check CHECK ((((octet_length(user_id) >= 1) AND (octet_length(user_id) <= 128)) AND (user_id ~ '^[!-"$&-.0->@-~]+$'::text)))
);

CREATE TABLE tidings.posted (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    user_id text COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.quiet (
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    zone text NOT NULL,
    from_minute smallint NOT NULL,
    to_minute smallint NOT NULL,
    at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT quiet_check CHECK ((from_minute <> to_minute)),
    CONSTRAINT quiet_check1 CHECK ((bucket = get_byte(sha256(convert_to(user_id, 'UTF8'::name)), 0))),
    CONSTRAINT quiet_from_minute_check CHECK (((from_minute >= 0) AND (from_minute <= 1439))),
    CONSTRAINT quiet_to_minute_check CHECK (((to_minute >= 0) AND (to_minute <= 1439))),
    CONSTRAINT quiet_user_id_check CHECK ((((octet_length(user_id) >= 1) AND (octet_length(user_id) <= 128)) AND (user_id ~ '^[!-"$&-.0->@-~]+$'::text)))
);

CREATE TABLE tidings.read (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    CONSTRAINT read_seq_check CHECK ((seq >= 0))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.receipt (
    channel text NOT NULL COLLATE pg_catalog."C",
    provider_msg_id text NOT NULL,
    status text NOT NULL,
    reference text,
    at timestamp with time zone,
    detail text,
    received_at timestamp with time zone NOT NULL,
    sweep_at timestamp with time zone NOT NULL,
    matched_task uuid
);

CREATE TABLE tidings.route (
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    device_id text NOT NULL COLLATE pg_catalog."C",
    gateway_id text NOT NULL COLLATE pg_catalog."C",
    connection_id uuid NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT route_check CHECK ((bucket = get_byte(sha256(convert_to(user_id, 'UTF8'::name)), 0)))
)
WITH (fillfactor='70');

CREATE TABLE tidings.taken_back (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    what text NOT NULL COLLATE pg_catalog."C",
    mid uuid,
    user_id text COLLATE pg_catalog."C",
    cmid text COLLATE pg_catalog."C",
    cutoff_at timestamp with time zone,
    epoch bigint NOT NULL,
    copied boolean DEFAULT false NOT NULL,
    CONSTRAINT taken_back_check CHECK (
CASE what
    WHEN 'recall'::text THEN ((mid IS NOT NULL) AND ((user_id IS NULL) = (cmid IS NULL)))
    WHEN 'purge'::text THEN (cutoff_at IS NOT NULL)
    WHEN 'erase'::text THEN ((conv_id = ''::text) AND (user_id IS NOT NULL) AND (cutoff_at IS NOT NULL))
    ELSE ((what = ANY (ARRAY['leave'::text, 'join'::text])) AND (user_id IS NOT NULL))
END)
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.task (
    id uuid NOT NULL,
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    notification_id uuid NOT NULL,
    channel text NOT NULL COLLATE pg_catalog."C",
    slot text NOT NULL COLLATE pg_catalog."C",
    priority smallint NOT NULL,
    state text NOT NULL,
    attempt_token uuid,
    attempt_count integer DEFAULT 0 NOT NULL,
    budget_left integer NOT NULL,
    outcome_uncertain boolean DEFAULT false NOT NULL,
    first_call_at timestamp with time zone,
    doubt_at timestamp with time zone,
    needs_review boolean DEFAULT false NOT NULL,
    force_send boolean DEFAULT false NOT NULL,
    settled_by text,
    lease_owner text,
    lease_until timestamp with time zone,
    next_attempt_at timestamp with time zone,
    address text,
    address_version bigint,
    renderer text,
    request_hash bytea,
    key_lost boolean DEFAULT false NOT NULL,
    provider_msg_id text,
    awaits_receipt boolean DEFAULT false NOT NULL,
    last_error text,
    CONSTRAINT task_budget_left_check CHECK ((budget_left >= 0)),
    CONSTRAINT task_check CHECK ((bucket = get_byte(uuid_send(id), 0))),
    CONSTRAINT task_state CHECK (
CASE state
    WHEN 'SENDING'::text THEN ((attempt_token IS NOT NULL) AND (lease_owner IS NOT NULL) AND (lease_until IS NOT NULL) AND (next_attempt_at IS NULL) AND (NOT needs_review))
    WHEN 'PENDING'::text THEN ((attempt_token IS NULL) AND (lease_until IS NULL) AND (next_attempt_at IS NOT NULL) AND (NOT needs_review) AND (NOT outcome_uncertain))
    WHEN 'UNKNOWN'::text THEN ((attempt_token IS NULL) AND (lease_until IS NULL) AND outcome_uncertain AND (doubt_at IS NOT NULL) AND ((next_attempt_at IS NULL) = needs_review))
    ELSE ((attempt_token IS NULL) AND (lease_until IS NULL) AND (next_attempt_at IS NULL) AND (NOT needs_review) AND ((state = 'SENT'::text) OR (NOT outcome_uncertain) OR (settled_by IS NOT NULL)))
END),
    CONSTRAINT task_state_check CHECK ((state = ANY (ARRAY['PENDING'::text, 'SENDING'::text, 'SENT'::text, 'FAILED'::text, 'UNKNOWN'::text, 'SUPPRESSED'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='100000', autovacuum_analyze_scale_factor='0.2', autovacuum_analyze_threshold='50000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE tidings.token_floor (
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    not_before timestamp with time zone NOT NULL,
    set_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT token_floor_check CHECK ((bucket = get_byte(sha256(convert_to(user_id, 'UTF8'::name)), 0))),
    CONSTRAINT token_floor_user_id_check CHECK ((((octet_length(user_id) >= 1) AND (octet_length(user_id) <= 128)) AND (user_id ~ '^[!-"$&-.0->@-~]+$'::text)))
);

CREATE TABLE tidings.tombstone (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    sender_user text NOT NULL COLLATE pg_catalog."C",
    cmid text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    purged_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE tidings.unread_due (
    conv_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    due_at timestamp with time zone NOT NULL,
    since_at timestamp with time zone,
    upto_seq bigint,
    CONSTRAINT unread_due_check CHECK (((seq >= 0) AND ((seq = 0) = (since_at IS NOT NULL)) AND ((seq = 0) = (upto_seq IS NOT NULL))))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY tidings.api_key
    ADD CONSTRAINT api_key_hash_key UNIQUE (hash);

ALTER TABLE ONLY tidings.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (id);

ALTER TABLE ONLY tidings.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (task_id, n, bucket);

ALTER TABLE ONLY tidings.channel_pref
    ADD CONSTRAINT channel_pref_pkey PRIMARY KEY (user_id, channel, slot, bucket);

ALTER TABLE ONLY tidings.channel_state
    ADD CONSTRAINT channel_state_pkey PRIMARY KEY (channel);

ALTER TABLE ONLY tidings.conversation
    ADD CONSTRAINT conversation_pkey PRIMARY KEY (conv_id);

ALTER TABLE ONLY tidings.delivered
    ADD CONSTRAINT delivered_pkey PRIMARY KEY (conv_id, user_id, device_id);

ALTER TABLE ONLY tidings.device
    ADD CONSTRAINT device_pkey PRIMARY KEY (user_id, device_id, bucket);

ALTER TABLE ONLY tidings.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (conv_id, seq);

ALTER TABLE ONLY tidings.gateway
    ADD CONSTRAINT gateway_pkey PRIMARY KEY (gateway_id);

ALTER TABLE ONLY tidings.gone
    ADD CONSTRAINT gone_pkey PRIMARY KEY (conv_id, why, user_id, seq);

ALTER TABLE ONLY tidings.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (one);

ALTER TABLE ONLY tidings.lineage
    ADD CONSTRAINT lineage_pkey PRIMARY KEY (node);

ALTER TABLE ONLY tidings.member
    ADD CONSTRAINT member_pkey PRIMARY KEY (conv_id, user_id, join_seq);

ALTER TABLE ONLY tidings.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (id);

ALTER TABLE ONLY tidings.mute
    ADD CONSTRAINT mute_pkey PRIMARY KEY (conv_id, user_id);

ALTER TABLE ONLY tidings.notification
    ADD CONSTRAINT notification_pkey PRIMARY KEY (id, bucket);

ALTER TABLE ONLY tidings.notification
    ADD CONSTRAINT notification_user_id_event_key_bucket_key UNIQUE (user_id, event_key, bucket);

ALTER TABLE ONLY tidings.optout
    ADD CONSTRAINT optout_pkey PRIMARY KEY (user_id, category, channel, bucket);

ALTER TABLE ONLY tidings.posted
    ADD CONSTRAINT posted_pkey PRIMARY KEY (conv_id, seq);

ALTER TABLE ONLY tidings.quiet
    ADD CONSTRAINT quiet_pkey PRIMARY KEY (user_id, bucket);

ALTER TABLE ONLY tidings.read
    ADD CONSTRAINT read_pkey PRIMARY KEY (conv_id, user_id);

ALTER TABLE ONLY tidings.receipt
    ADD CONSTRAINT receipt_pkey PRIMARY KEY (channel, provider_msg_id, status);

ALTER TABLE ONLY tidings.route
    ADD CONSTRAINT route_pkey PRIMARY KEY (user_id, device_id, bucket);

ALTER TABLE ONLY tidings.taken_back
    ADD CONSTRAINT taken_back_pkey PRIMARY KEY (conv_id, id);

ALTER TABLE ONLY tidings.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id, bucket);

ALTER TABLE ONLY tidings.token_floor
    ADD CONSTRAINT token_floor_pkey PRIMARY KEY (user_id, bucket);

ALTER TABLE ONLY tidings.tombstone
    ADD CONSTRAINT tombstone_pkey PRIMARY KEY (conv_id, sender_user, cmid);

ALTER TABLE ONLY tidings.unread_due
    ADD CONSTRAINT unread_due_pkey PRIMARY KEY (conv_id, seq);

CREATE INDEX conversation_retained ON tidings.conversation USING btree (conv_id) WHERE (retention_ms IS NOT NULL);

CREATE UNIQUE INDEX event_cmid ON tidings.event USING btree (conv_id, sender_user, cmid) WHERE (cmid IS NOT NULL);

CREATE INDEX gone_marked ON tidings.gone USING btree (at) WHERE marked;

CREATE INDEX gone_unmarked ON tidings.gone USING btree (conv_id) WHERE (NOT marked);

CREATE UNIQUE INDEX member_open ON tidings.member USING btree (conv_id, user_id) WHERE (leave_seq IS NULL);

CREATE INDEX member_user ON tidings.member USING btree (user_id, conv_id);

CREATE INDEX notification_about ON tidings.notification USING btree (about_conv, about_seq) WHERE ((about_conv IS NOT NULL) AND (about_gone_at IS NULL));

CREATE INDEX notification_about_user ON tidings.notification USING btree (user_id, about_conv, about_seq) WHERE ((about_conv IS NOT NULL) AND (about_gone_at IS NULL));

CREATE INDEX notification_tombstone ON tidings.notification USING btree (purged_at) WHERE (purged_at IS NOT NULL);

CREATE INDEX notification_unpurged ON tidings.notification USING btree (id) WHERE (purged_at IS NULL);

CREATE INDEX receipt_received ON tidings.receipt USING btree (received_at);

CREATE INDEX receipt_unmatched ON tidings.receipt USING btree (sweep_at) WHERE (matched_task IS NULL);

CREATE INDEX route_gateway ON tidings.route USING btree (gateway_id);

CREATE INDEX taken_back_copied ON tidings.taken_back USING btree (at) WHERE copied;

CREATE INDEX taken_back_uncopied ON tidings.taken_back USING btree (at) WHERE (NOT copied);

CREATE INDEX task_due ON tidings.task USING btree (channel, priority, next_attempt_at, id) WHERE ((state = ANY (ARRAY['PENDING'::text, 'UNKNOWN'::text])) AND (NOT needs_review));

CREATE INDEX task_lease ON tidings.task USING btree (channel, lease_until) WHERE (state = 'SENDING'::text);

CREATE INDEX task_provider_msg ON tidings.task USING btree (hashtextextended(provider_msg_id, (0)::bigint)) WHERE (provider_msg_id IS NOT NULL);

CREATE INDEX task_review ON tidings.task USING btree (doubt_at, id) WHERE needs_review;

CREATE INDEX token_floor_set ON tidings.token_floor USING btree (set_at);

CREATE INDEX tombstone_age ON tidings.tombstone USING btree (purged_at);

CREATE INDEX unread_due_at ON tidings.unread_due USING btree (due_at);
