-- +goose Up

-- One row: who we are to the providers. The id is part of every task's id, so two installations that share a provider
-- account never meet in an idempotency key; a restored backup keeps it, so a task submitted again finds its old result.
CREATE TABLE tidings.installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO tidings.installation DEFAULT VALUES;

-- Which PostgreSQL history this is, per node. The generation makes a history unique: it only grows, and recover raises it.
CREATE TABLE tidings.lineage (
    node              text PRIMARY KEY,
    system_identifier numeric NOT NULL,
    timeline          bigint NOT NULL,
    lsn               pg_lsn NOT NULL,
    database_oid      oid NOT NULL,
    log_oid           oid NOT NULL,
    generation        bigint NOT NULL CHECK (generation > 1 AND generation < 9007199254740992),
    recorded_at       timestamptz NOT NULL
);

-- Keys of servers that use the API. Only a hash is kept: the key itself is shown once.
CREATE TABLE tidings.api_key (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name       text NOT NULL,
    hash       bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    scopes     text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

-- Pausing binds all workers: every claim reads it.
CREATE TABLE tidings.channel_state (
    channel      text COLLATE "C" PRIMARY KEY,
    paused_until timestamptz NOT NULL,
    reason       text NOT NULL,
    by           text NOT NULL,
    at           timestamptz NOT NULL
);

-- An id: 1 to 128 bytes of printable ASCII without space and the characters # % / ? that have a meaning in URLs.
-- +goose StatementBegin
CREATE FUNCTION tidings.is_id(t text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN octet_length(t) BETWEEN 1 AND 128 AND t COLLATE "C" ~ '^[!-"$&-.0->@-~]+$'; -- a bound in the pattern costs 15 times as much
-- +goose StatementEnd

-- The functions below are declared STABLE, although they never change their answers: they call convert_to and concat, which are,
-- and a function that claims more than its body is not inlined, which costs three times its work.

-- The bucket of a user: the first byte of the SHA-256 of the id. tidings.Bucket in Go computes the same.
-- +goose StatementBegin
CREATE FUNCTION tidings.bucket_of(user_id text) RETURNS smallint LANGUAGE sql STABLE PARALLEL SAFE
    RETURN get_byte(sha256(convert_to(user_id, 'UTF8')), 0)::smallint;
-- +goose StatementEnd

-- A new id whose first byte is the bucket; behind it the milliseconds, so that each bucket's index grows at its end, and
-- 70 random bits.
-- +goose StatementBegin
CREATE FUNCTION tidings.new_id(bucket smallint) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN encode(overlay(set_byte(uuid_send(gen_random_uuid()), 0, bucket)
        PLACING substr(int8send((date_part('epoch', statement_timestamp()) * 1000)::bigint), 3) FROM 2), 'hex')::uuid;
-- +goose StatementEnd

-- The hash of a notification, its key and its content: ids, which have no '/', then the lengths of the texts, then the texts, so
-- that no two notifications give the same bytes.
-- +goose StatementBegin
CREATE FUNCTION tidings.payload_hash(user_id text, event_key text, title text, body text, data jsonb, category text, about_conv text, about_seq bigint)
    RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256(convert_to(concat(user_id, '/', event_key, '/', coalesce(octet_length(title), -1), ',', coalesce(octet_length(body), -1), ',',
        coalesce(octet_length(data::text), -1), ',', coalesce(octet_length(category), -1), ';', title, body, data, category,
        about_conv, '/', about_seq), 'UTF8'));
-- +goose StatementEnd

-- The id of a task, which is also its idempotency key and the reference by which its provider is asked: the bucket, 7 bytes of
-- the notification's payload_hash, so that the tasks of a notification stand together in the primary key, and 8 bytes of the hash of
-- everything that makes the task the one it is. It is derived from the task's notification, channel and slot, so the primary key is
-- also what keeps them from having two tasks.
-- +goose StatementBegin
CREATE FUNCTION tidings.task_id(bucket smallint, installation uuid, payload_hash bytea, channel text, slot text) RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    -- an id has no '/', so the texts cannot run into each other
    RETURN encode(set_byte(substr(payload_hash, 1, 8), 0, bucket)
        || substr(sha256(convert_to(concat(installation, '/', channel, '/', slot, '/'), 'UTF8') || payload_hash), 1, 8), 'hex')::uuid;
-- +goose StatementEnd

-- The least and the greatest id that a task of a notification can have. Another notification may share the 8 bytes: compare
-- notification_id too.
-- +goose StatementBegin
CREATE FUNCTION tidings.first_task_id(bucket smallint, payload_hash bytea) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(set_byte(substr(payload_hash, 1, 8), 0, bucket) || '\x0000000000000000', 'hex')::uuid;
CREATE FUNCTION tidings.last_task_id(bucket smallint, payload_hash bytea) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(set_byte(substr(payload_hash, 1, 8), 0, bucket) || '\xffffffffffffffff', 'hex')::uuid;
-- +goose StatementEnd

-- Where a user can be reached. slot tells several addresses on one channel apart (a browser, a phone).
CREATE TABLE tidings.channel_pref (
    bucket     smallint NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    channel    text COLLATE "C" NOT NULL CHECK (tidings.is_id(channel)),
    slot       text COLLATE "C" NOT NULL DEFAULT '' CHECK (slot = '' OR tidings.is_id(slot)),
    address    text NOT NULL CHECK (octet_length(address) BETWEEN 1 AND 4096),
    enabled    boolean NOT NULL DEFAULT true,
    version    bigint NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (user_id, channel, slot, bucket),
    CHECK (bucket = tidings.bucket_of(user_id)),
    CHECK (tidings.is_id(user_id))
);

-- A user wants nothing of this category on this channel; channel '' means on none.
CREATE TABLE tidings.optout (
    bucket   smallint NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    category text COLLATE "C" NOT NULL CHECK (tidings.is_id(category)),
    channel  text COLLATE "C" NOT NULL DEFAULT '' CHECK (channel = '' OR tidings.is_id(channel)),
    at       timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (user_id, category, channel, bucket),
    CHECK (bucket = tidings.bucket_of(user_id)),
    CHECK (tidings.is_id(user_id))
);

-- The intent. UNIQUE (user_id, event_key) is the only basis of logical deduplication. The row is its own tombstone:
-- purging empties it and keeps the key, because a separate table of tombstones would race with a resubmission.
CREATE TABLE tidings.notification (
    id            uuid NOT NULL,
    bucket        smallint NOT NULL,
    user_id       text COLLATE "C" NOT NULL CONSTRAINT notification_user_is_an_id CHECK (tidings.is_id(user_id)),
    event_key     text COLLATE "C" NOT NULL CONSTRAINT notification_event_key_is_an_id CHECK (tidings.is_id(event_key)),
    title         text CONSTRAINT notification_title_too_long CHECK (octet_length(title) <= 1024),
    body          text CONSTRAINT notification_body_too_long CHECK (octet_length(body) <= 16384),
    data          jsonb CONSTRAINT notification_data_is_an_object CHECK (jsonb_typeof(data) = 'object' AND octet_length(data::text) <= 16384),
    category      text COLLATE "C" CONSTRAINT notification_category_is_an_id CHECK (tidings.is_id(category)),
    payload_hash  bytea,
    channels      text[],
    priority      smallint NOT NULL CONSTRAINT notification_priority_unknown CHECK (priority BETWEEN 0 AND 2),
    max_attempts  smallint NOT NULL CONSTRAINT notification_max_attempts_out_of_range CHECK (max_attempts BETWEEN 1 AND 100),
    duplicates    text NOT NULL CONSTRAINT notification_duplicates_unknown CHECK (duplicates IN ('forbid', 'allow')),
    about_conv    text COLLATE "C" CONSTRAINT notification_about_conv_is_an_id CHECK (tidings.is_id(about_conv)),
    about_seq     bigint CONSTRAINT notification_about_seq_out_of_range CHECK (about_seq >= 1),
    about_gone_at timestamptz,
    not_before    timestamptz,
    expires_at    timestamptz NOT NULL,
    created_at    timestamptz NOT NULL,
    cancelled_at  timestamptz,
    purged_at     timestamptz,
    PRIMARY KEY (id, bucket),
    UNIQUE (user_id, event_key, bucket),
    CHECK (bucket = get_byte(uuid_send(id), 0)),
    CONSTRAINT notification_ttl_out_of_range CHECK (expires_at > created_at AND expires_at < created_at + interval '800 days'),
    CHECK ((about_conv IS NULL) = (about_seq IS NULL)),
    CHECK ((payload_hash IS NULL) = (purged_at IS NOT NULL)),
    CHECK (purged_at IS NULL OR (title IS NULL AND body IS NULL AND data IS NULL AND channels IS NULL))
);

-- What is not purged, in the order in which it is: an id begins with bucket and time. By time alone all writers would meet on the
-- last page.
CREATE INDEX notification_unpurged ON tidings.notification (id) WHERE purged_at IS NULL;
-- Tombstones in the order in which they are deleted.
CREATE INDEX notification_tombstone ON tidings.notification (purged_at) WHERE purged_at IS NOT NULL;

-- One notification on one channel to one address. It has the state machine of tidings.Edges.
--
-- The id is derived (tidings.task_id): it is the idempotency key, and a provider's reference finds its task by the
-- primary key. There is no foreign key to notification: it would cost a look-up and a row lock for each row of a batch;
-- the only writer is notify_v1, the only remover the purge, and `tidings verify` looks for orphans.
CREATE TABLE tidings.task (
    id                uuid NOT NULL,
    bucket            smallint NOT NULL,
    user_id           text COLLATE "C" NOT NULL,
    notification_id   uuid NOT NULL,
    channel           text COLLATE "C" NOT NULL,
    slot              text COLLATE "C" NOT NULL,
    priority          smallint NOT NULL,
    state             text NOT NULL CHECK (state IN ('PENDING', 'SENDING', 'SENT', 'FAILED', 'UNKNOWN', 'SUPPRESSED')),
    attempt_token     uuid,
    attempt_count     int NOT NULL DEFAULT 0,
    budget_left       int NOT NULL,
    outcome_uncertain boolean NOT NULL DEFAULT false,
    first_call_at     timestamptz,  -- the first SEND that may have reached the provider: its key's window counts from here
    doubt_at          timestamptz,  -- the end of the newest SEND in doubt: a provider's settle time counts from here
    needs_review      boolean NOT NULL DEFAULT false,
    force_send        boolean NOT NULL DEFAULT false,
    settled_by        text,         -- who settled it, when a person did
    lease_owner       text,
    lease_until       timestamptz,
    next_attempt_at   timestamptz,
    address           text,         -- frozen at the first claim, with the version of the preference it came from
    address_version   bigint,
    renderer          text,         -- frozen at the first claim
    request_hash      bytea,        -- of the first request
    key_lost          boolean NOT NULL DEFAULT false, -- other bytes were rendered since: the key protects no longer
    provider_msg_id   text,
    awaits_receipt    boolean NOT NULL DEFAULT false, -- the channel's provider reports by itself
    last_error        text,
    PRIMARY KEY (id, bucket),
    CHECK (bucket = get_byte(uuid_send(id), 0)),
    CHECK (budget_left >= 0),
    -- P4 and P7 as a constraint: a task is scheduled, leased, waiting for a person or final, never two of them and never
    -- none; and one in doubt is final only as SENT or by a person's word.
    CONSTRAINT task_state CHECK (CASE state
        WHEN 'SENDING' THEN attempt_token IS NOT NULL AND lease_owner IS NOT NULL AND lease_until IS NOT NULL AND next_attempt_at IS NULL AND NOT needs_review
        WHEN 'PENDING' THEN attempt_token IS NULL AND lease_until IS NULL AND next_attempt_at IS NOT NULL AND NOT needs_review AND NOT outcome_uncertain
        WHEN 'UNKNOWN' THEN attempt_token IS NULL AND lease_until IS NULL AND outcome_uncertain AND doubt_at IS NOT NULL AND (next_attempt_at IS NULL) = needs_review
        ELSE attempt_token IS NULL AND lease_until IS NULL AND next_attempt_at IS NULL AND NOT needs_review
             AND (state = 'SENT' OR NOT outcome_uncertain OR settled_by IS NOT NULL) END)
) WITH (
    -- Each task is rewritten twice (claim, finish). Room on its page keeps the new versions beside the old one; the index
    -- on due tasks is only as small as vacuum keeps it, so vacuum comes by count of changes, not by share of the table.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    -- The statements of the hot path go by indexes whatever the statistics say, so those may be old.
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- The due tasks of a channel and priority in the order in which they leave. Finished, leased and parked tasks are not in
-- it, tasks of the future lie behind the due ones: a claim reads what it takes and nothing else. What it cannot avoid
-- are dead entries of tasks that were taken since the last vacuum; claims start behind them (the watermark in
-- internal/store/claim.go), because an old snapshot held open keeps vacuum from removing them.
CREATE INDEX task_due ON tidings.task (channel, priority, next_attempt_at, id) WHERE state IN ('PENDING', 'UNKNOWN') AND NOT needs_review;
-- Leases, so that expired ones are found without looking at due tasks. It holds only calls in flight.
CREATE INDEX task_lease ON tidings.task (channel, lease_until) WHERE state = 'SENDING';
-- The review queue, oldest doubt first.
CREATE INDEX task_review ON tidings.task (doubt_at, id) WHERE needs_review;
-- Receipts that name the provider's id only. Channels whose providers never report pay nothing for it.
CREATE INDEX task_provider_msg ON tidings.task (provider_msg_id, channel) WHERE awaits_receipt;

-- The journal: one row per attempt, written before its call; receipts, expiries and decisions are rows too, with action NONE
-- and without a token. A token is the bucket's byte, 7 random bytes of the claim and the last 8 bytes of the task's id. outcome is
-- written where it is NULL, otherwise late_outcome where that is NULL: nothing is overwritten.
CREATE TABLE tidings.attempt (
    bucket          smallint NOT NULL,
    task_id         uuid NOT NULL,
    n               int NOT NULL,
    token           uuid,
    action          text NOT NULL CHECK (action IN ('SEND', 'QUERY', 'NONE')),
    worker          text NOT NULL,
    started_at      timestamptz NOT NULL,
    finished_at     timestamptz,
    outcome         text,
    detail          text,
    provider_msg_id text,
    late_outcome    text,
    late_detail     text,
    late_at         timestamptz,
    PRIMARY KEY (task_id, n, bucket),
    CHECK (bucket = get_byte(uuid_send(task_id), 0)),
    CHECK ((token IS NULL) = (action = 'NONE')),
    CONSTRAINT attempt_outcome CHECK (outcome IN ('ACCEPTED', 'ACCEPTED_REPLAY', 'QUERY_FOUND', 'QUERY_NOT_FOUND',
        'QUERY_FAILED', 'TIMEOUT', 'IO_ERROR', 'HTTP_5XX', 'REJECTED', 'THROTTLED', 'NOT_SENT', 'LEASE_EXPIRED',
        'PREF_DISABLED', 'PREF_DISABLED_UNCERTAIN', 'TTL_EXPIRED', 'TTL_EXPIRED_UNCERTAIN', 'SOURCE_GONE',
        'SOURCE_GONE_UNCERTAIN', 'CANCELLED', 'CANCELLED_UNCERTAIN', 'RECOVERED_UNCERTAIN', 'RECEIPT', 'MANUAL_SENT',
        'MANUAL_FAILED', 'MANUAL_RESEND')),
    CHECK ((outcome IS NULL) = (finished_at IS NULL)),
    CHECK (late_outcome IS NULL OR outcome IS NOT NULL)
) WITH (
    -- Half of each page stays free for the one update that every row gets, so that it stays on its page (HOT) and
    -- touches no index.
    fillfactor = 55,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- What a provider reported by itself. A report can come before our own finish: one without a task is tried again when its
-- turn comes (sweep_at), and deleted after a stated time.
CREATE TABLE tidings.receipt (
    channel         text COLLATE "C" NOT NULL,
    provider_msg_id text NOT NULL,
    status          text NOT NULL,
    reference       text,
    at              timestamptz,
    detail          text,
    received_at     timestamptz NOT NULL,
    sweep_at        timestamptz NOT NULL,
    matched_task    uuid,
    PRIMARY KEY (channel, provider_msg_id, status)
);
CREATE INDEX receipt_unmatched ON tidings.receipt (sweep_at) WHERE matched_task IS NULL;
CREATE INDEX receipt_received ON tidings.receipt (received_at);

-- The answer to one notification of a call.
CREATE TYPE tidings.notified AS (position int, id uuid, created boolean, tasks int, payload_differs boolean, expired boolean);

-- notify_rows writes the notifications of one call and the tasks of those that are new, and answers the new ones alone. Positions count
-- on from before. The id of a new notification is notification_id(call, bucket, position).
--
-- Keys are sorted before they are inserted, so that two calls cannot deadlock. An insert that meets the same key of a
-- transaction still running waits for it and writes the notification itself when that one rolls back. A key that stands twice in
-- the call meets itself.
-- +goose StatementBegin
CREATE FUNCTION tidings.notification_id(call bytea, bucket smallint, at int) RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    RETURN encode(overlay(set_byte(call, 0, bucket) PLACING int2send(at::smallint) FROM 8), 'hex')::uuid;

CREATE FUNCTION tidings.notify_rows(items json, call bytea, before int) RETURNS SETOF tidings.notified LANGUAGE plpgsql
    -- A plan that was made while a table was small would read it whole later; compiling takes longer than all of it.
    SET enable_seqscan = off SET jit = off AS $$
DECLARE
    now_at timestamptz := statement_timestamp();
    ours   uuid := (SELECT i.id FROM tidings.installation i WHERE i.one);
BEGIN
    RETURN QUERY WITH created AS (
        INSERT INTO tidings.notification AS n (id, bucket, user_id, event_key, title, body, data, category, payload_hash,
               channels, priority, max_attempts, duplicates, about_conv, about_seq, not_before, expires_at, created_at)
        SELECT tidings.notification_id(call, i.bucket, before + i.ord::int), i.bucket, i."user", i.event_key, i.title, i.body, i.data, i.category,
               tidings.payload_hash(i."user", i.event_key, i.title, i.body, i.data, i.category, i.about ->> 'conv', (i.about ->> 'seq')::bigint),
               i.channels, coalesce(i.priority, 1), coalesce(i.max_attempts, 5), coalesce(i.duplicates, 'forbid'),
               i.about ->> 'conv', (i.about ->> 'seq')::bigint, i.not_before, greatest(now_at, i.not_before) + i.ttl_s * interval '1 second', now_at
          FROM (SELECT x.*, tidings.bucket_of(x."user") AS bucket
                  FROM ROWS FROM (json_to_recordset(items) AS ("user" text, event_key text, title text, body text, data jsonb,
                           category text, channels text[], priority smallint, ttl_s bigint, not_before timestamptz,
                           max_attempts smallint, duplicates text, about jsonb))
                       WITH ORDINALITY AS x ("user", event_key, title, body, data, category, channels, priority, ttl_s, not_before,
                           max_attempts, duplicates, about, ord)
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

-- notify_batch submits the notifications of an array, of which there are many, in the caller's transaction and answers each; the
-- position counts from 1.
--
-- A duplicate is an answer, never an error. Under REPEATABLE READ and SERIALIZABLE a duplicate whose original was
-- committed after the caller's snapshot cannot be seen: it is answered with created = false and without id.
-- +goose StatementBegin
CREATE FUNCTION tidings.notify_batch(items json, many int) RETURNS SETOF tidings.notified LANGUAGE plpgsql AS $$
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
-- +goose StatementEnd

-- notify_v1 is notify_batch for every language: it takes one notification (an object) or many (an array) and answers an array of
-- {id, created, tasks, payload_differs, expired} in the same order. Its name and shape stay as they are; a changed one will be
-- notify_v2.
--
-- Bad input raises SQLSTATE 23514 or 23502 with the name of the violated constraint, or 22P02 for what is not JSON.
-- +goose StatementBegin
CREATE FUNCTION tidings.notify_v1(input json) RETURNS json LANGUAGE sql AS $$
    SELECT coalesce(json_agg(json_build_object('id', a.id, 'created', a.created, 'tasks', a.tasks,
                                               'payload_differs', a.payload_differs, 'expired', a.expired) ORDER BY a.position), '[]')
      FROM (SELECT CASE json_typeof(input) WHEN 'array' THEN input ELSE json_build_array(input) END AS items) i
     CROSS JOIN tidings.notify_batch(i.items, json_array_length(i.items)) a
$$;
-- +goose StatementEnd
