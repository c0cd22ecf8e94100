-- +goose Up

-- The conversation family is distributed by conv_id, the user family (device, route, token_floor) by bucket.

-- A conversation's row is the lock of its log: whoever appends holds it, and the next seq stands in it. It is never deleted, so
-- seq and epoch never start again.
CREATE TABLE tidings.conversation (
    conv_id          text COLLATE "C" PRIMARY KEY,
    next_seq         bigint NOT NULL DEFAULT 1,
    min_seq          bigint NOT NULL DEFAULT 1,
    epoch            bigint NOT NULL, -- of the log's history: the generation of the lineage
    recall_window_ms bigint NOT NULL DEFAULT 120000,
    retention_ms     bigint, -- NULL: for ever
    created_at       timestamptz NOT NULL DEFAULT statement_timestamp(),
    -- One constraint, and no function in it: PostgreSQL reads and plans a constraint anew for each statement that writes. What an id
    -- looks like is checked where a conversation is created.
    CONSTRAINT conversation_shape CHECK (1 <= min_seq AND min_seq <= next_seq AND epoch > 1 AND recall_window_ms >= 0 AND retention_ms > 0)
) WITH (
    -- next_seq is rewritten with each batch of messages. No index has it, so with room on its page the row stays there (HOT).
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- The log. Events are appended and never changed, except that a recall empties what it recalls; a purge deletes a prefix.
CREATE TABLE tidings.event (
    conv_id       text COLLATE "C" NOT NULL,
    seq           bigint NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    mid           uuid,             -- of a msg: what identifies it across restores
    sender_user   text COLLATE "C" NOT NULL,
    sender_device text COLLATE "C",
    actor_user    text COLLATE "C", -- who did it in the sender's stead
    cmid          text COLLATE "C",
    request_hash  bytea,            -- of the content, to tell a repeat from another message under the same cmid
    body          text,
    data          text,
    target_seq    bigint,           -- of a recall: the message
    recalled_by   bigint,           -- of a recalled message: the recall
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (conv_id, seq),
    -- What a row of each kind is; a recalled message has no content any more (R6). Lengths and ids are checked by post_v1 and by the
    -- gateways, for the reason given at conversation_shape.
    CONSTRAINT event_shape CHECK (CASE kind
        WHEN 'msg' THEN mid IS NOT NULL AND cmid IS NOT NULL AND (recalled_by IS NULL OR (body IS NULL AND data IS NULL AND request_hash IS NULL))
        WHEN 'recall' THEN target_seq IS NOT NULL AND body IS NULL AND data IS NULL AND recalled_by IS NULL
        ELSE kind IN ('join', 'leave') AND body IS NULL AND data IS NULL AND recalled_by IS NULL END)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
-- One request key is one event (R1).
CREATE UNIQUE INDEX event_cmid ON tidings.event (conv_id, sender_user, cmid) WHERE cmid IS NOT NULL;

-- Membership: intervals of seqs, both ends inclusive, several for one user. They are never derived from events, because a purge
-- deletes those.
CREATE TABLE tidings.member (
    conv_id   text COLLATE "C" NOT NULL,
    user_id   text COLLATE "C" NOT NULL CONSTRAINT member_user_is_an_id CHECK (tidings.is_id(user_id)),
    join_seq  bigint NOT NULL CHECK (join_seq >= 1),
    leave_seq bigint,
    PRIMARY KEY (conv_id, user_id, join_seq),
    CHECK (leave_seq >= join_seq)
);
CREATE UNIQUE INDEX member_open ON tidings.member (conv_id, user_id) WHERE leave_seq IS NULL;
CREATE INDEX member_user ON tidings.member (user_id, conv_id);

-- How far a device has stored a conversation without a hole. It only grows within one install.
CREATE TABLE tidings.delivered (
    conv_id    text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    device_id  text COLLATE "C" NOT NULL,
    install_no bigint NOT NULL,
    seq        bigint NOT NULL CHECK (seq >= 0),
    PRIMARY KEY (conv_id, user_id, device_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);

-- How far a user has read a conversation, on whichever device. It only grows.
CREATE TABLE tidings.read (
    conv_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL CHECK (seq >= 0),
    PRIMARY KEY (conv_id, user_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);

-- The request keys of purged messages.
CREATE TABLE tidings.tombstone (
    conv_id     text COLLATE "C" NOT NULL,
    sender_user text COLLATE "C" NOT NULL,
    cmid        text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    purged_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (conv_id, sender_user, cmid)
);
CREATE INDEX tombstone_age ON tidings.tombstone (purged_at);

-- Events that an application has appended in its own transaction and of which the gateways have not been told yet. A row is
-- deleted when it was put on the bus: a position in a serial number would skip one that commits late.
CREATE TABLE tidings.posted (
    conv_id text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    user_id text COLLATE "C", -- of a join: who may be connected and not know the conversation yet
    PRIMARY KEY (conv_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- A user's devices. A new install of one becomes current with a higher number; the former ones are refused from then on.
CREATE TABLE tidings.device (
    bucket     smallint NOT NULL,
    user_id    text COLLATE "C" NOT NULL CONSTRAINT device_user_is_an_id CHECK (tidings.is_id(user_id)),
    device_id  text COLLATE "C" NOT NULL CONSTRAINT device_device_is_an_id CHECK (tidings.is_id(device_id)),
    install_id text COLLATE "C" NOT NULL CONSTRAINT device_install_is_an_id CHECK (tidings.is_id(install_id)),
    install_no bigint NOT NULL DEFAULT 1,
    former     text[] COLLATE "C" NOT NULL DEFAULT '{}', -- installs that were current before, the newest last
    connects   bigint NOT NULL DEFAULT 0,                -- the version of its newest route
    seen_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (user_id, device_id, bucket),
    CHECK (bucket = tidings.bucket_of(user_id))
) WITH (fillfactor = 70);

-- Gateways that are alive: each renews its lease.
CREATE TABLE tidings.gateway (
    gateway_id  text COLLATE "C" PRIMARY KEY CHECK (tidings.is_id(gateway_id)),
    started_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    lease_until timestamptz NOT NULL,
    draining    boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- Which connection a device is at: exactly one, the one with the highest version (R7).
CREATE TABLE tidings.route (
    bucket        smallint NOT NULL,
    user_id       text COLLATE "C" NOT NULL,
    device_id     text COLLATE "C" NOT NULL,
    gateway_id    text COLLATE "C" NOT NULL,
    connection_id uuid NOT NULL,
    version       bigint NOT NULL,
    PRIMARY KEY (user_id, device_id, bucket),
    CHECK (bucket = tidings.bucket_of(user_id))
) WITH (fillfactor = 70);
CREATE INDEX route_gateway ON tidings.route (gateway_id);

-- Tokens of a user that were issued before this time are revoked.
CREATE TABLE tidings.token_floor (
    bucket     smallint NOT NULL,
    user_id    text COLLATE "C" NOT NULL CHECK (tidings.is_id(user_id)),
    not_before timestamptz NOT NULL,
    set_at     timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (user_id, bucket),
    CHECK (bucket = tidings.bucket_of(user_id))
);
CREATE INDEX token_floor_set ON tidings.token_floor (set_at);

-- The hash of a message's content: the length keeps body and data from running into each other.
-- +goose StatementBegin
CREATE FUNCTION tidings.message_hash(body text, data text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256(convert_to(concat(octet_length(body), ',', body, data), 'UTF8'));
-- +goose StatementEnd

-- The answer to one message of a call. code: '' stored; NOT_MEMBER, IDEMPOTENCY_MISMATCH, ORIGINAL_EXPIRED refused; BUSY: the
-- conversation is locked by somebody else, nothing was looked at.
CREATE TYPE tidings.sent AS (position int, code text, seq bigint, mid uuid, epoch bigint, at timestamptz, dup boolean);

-- The messages of a call as rows. It is no inlined unnest because of its ROWS 1: with it the plan for any number of messages is the
-- plan for one, by index, and costs what the cached plan costs, so that the plan is not made anew for each call. It is plpgsql, whose
-- own plan is kept, while a function in SQL is parsed for each call.
-- +goose StatementBegin
CREATE FUNCTION tidings.send_items(places int[], senders text[], devices text[], cmids text[], bodies text[], datas text[])
    RETURNS TABLE (place int, sender text, device text, cmid text, body text, data text, ord bigint) LANGUAGE plpgsql VOLATILE ROWS 1 AS $$
BEGIN
    RETURN QUERY SELECT * FROM ROWS FROM (unnest(places), unnest(senders), unnest(devices), unnest(cmids), unnest(bodies), unnest(datas)) WITH ORDINALITY;
END $$;
-- +goose StatementEnd

-- send_rows appends messages to conversations: the one implementation of the rule, for gateways and for post_v1.
--
-- convs are the conversations, distinct and in the order of their bytes; places says for each message which of them is meant. With
-- wait the locks are waited for, otherwise a conversation that is locked is left out, so that nothing is waited for while
-- something is held.
--
-- The lock and the look are two statements, because one that waited for the lock would still see what was before it: for
-- that the function is VOLATILE and the transaction READ COMMITTED. The order of the look: the original (a repeat is answered
-- with its seq), its tombstone (also for one who has left), the membership. Only what passes gets a seq, and the INSERT has no
-- ON CONFLICT: a conflict aborts, it leaves no hole.
--
-- OFFSET 0 keeps each look a look of its own. As plain joins, planned while a table was empty, they read its whole index for each
-- message, and go on doing so while it grows.
--
-- It is one statement for all messages: a loop of small ones was measured at three times the work, nearly all of it the starting
-- and ending of statements.
-- +goose StatementBegin
CREATE FUNCTION tidings.send_rows(convs text[], places int[], senders text[], devices text[], cmids text[], bodies text[], datas text[], wait boolean)
    RETURNS SETOF tidings.sent LANGUAGE plpgsql VOLATILE
    -- Rows are found by their keys, whatever the statistics of a young table say; compiling takes longer than all of it.
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET enable_material = off SET jit = off AS $$
DECLARE
    heads   bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(convs)]); -- next_seq, NULL when it is not locked
    epochs  bigint[] := heads;
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
        OPEN locking FOR SELECT c.conv_id, c.next_seq, c.epoch FROM tidings.conversation c
            WHERE c.conv_id = ANY (ARRAY(SELECT unnest(convs))) ORDER BY c.conv_id FOR NO KEY UPDATE;
    ELSE
        OPEN locking FOR SELECT c.conv_id, c.next_seq, c.epoch FROM tidings.conversation c
            WHERE c.conv_id = ANY (ARRAY(SELECT unnest(convs))) ORDER BY c.conv_id FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    LOOP
        FETCH locking INTO one;
        EXIT WHEN NOT FOUND;
        WHILE convs[place] COLLATE "C" < one.conv_id LOOP place := place + 1; END LOOP;
        heads[place] := one.next_seq;
        epochs[place] := one.epoch;
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
END $$;
-- +goose StatementEnd

-- post_v1 appends messages in the caller's transaction: one (an object {conv, sender, device, cmid, body, data}) or many (an
-- array). It answers an array of {code, seq, mid, epoch, at, dup} in the same order; code is NOT_MEMBER, IDEMPOTENCY_MISMATCH or
-- ORIGINAL_EXPIRED, or absent. A refusal is an answer and never an error. Conversations are locked in the order of their ids and
-- stay locked until the caller ends its transaction, which has to be READ COMMITTED.
--
-- Its name and shape stay as they are; a changed one will be post_v2. Bad input raises SQLSTATE 23514 or 23502 with the name of
-- the violated constraint, or 22P02 for what is not JSON.
-- +goose StatementBegin
CREATE FUNCTION tidings.post_v1(input json) RETURNS json LANGUAGE plpgsql VOLATILE AS $$
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
-- +goose StatementEnd
