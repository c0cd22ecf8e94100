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

CREATE FUNCTION tidings.bucket_of(user_id text) RETURNS smallint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (get_byte(sha256(convert_to(user_id, 'UTF8'::name)), 0))::smallint;

CREATE FUNCTION tidings.is_id(t text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (((octet_length(t) >= 1) AND (octet_length(t) <= 128)) AND ((t COLLATE "C") ~ '^[!-"$&-.0->@-~]+$'::text));

CREATE FUNCTION tidings.new_id(bucket smallint) RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    RETURN (encode(OVERLAY(set_byte(uuid_send(gen_random_uuid()), 0, (bucket)::integer) PLACING substr(int8send(((date_part('epoch'::text, statement_timestamp()) * (1000)::double precision))::bigint), 3) FROM 2), 'hex'::text))::uuid;

CREATE FUNCTION tidings.notify_batch(items json) RETURNS SETOF tidings.notified
    LANGUAGE plpgsql
    AS $$
DECLARE
    fresh   boolean := current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
    missing int[] := '{}'; -- answered without id: they existed
    gone    int[];         -- of those, the ones whose original has been deleted meanwhile
    at      int;
    one     tidings.notified;
BEGIN
    IF fresh THEN
        FOR one IN SELECT * FROM tidings.notify_rows(items) LOOP
            IF one.id IS NULL THEN missing := missing || one.position; ELSE RETURN NEXT one; END IF;
        END LOOP;
    ELSE
        BEGIN
            FOR one IN SELECT * FROM tidings.notify_rows(items) LOOP
                IF one.id IS NULL THEN missing := missing || one.position; ELSE RETURN NEXT one; END IF;
            END LOOP;
        EXCEPTION WHEN serialization_failure THEN
            -- Some original is invisible, and nothing of this call was written: find out which, one by one.
            missing := '{}';
            FOR at IN 1 .. json_array_length(items) LOOP
                BEGIN
                    SELECT * INTO one FROM tidings.notify_rows(json_build_array(items -> (at - 1)));
                    one.position := at;
                    IF one.id IS NULL THEN missing := missing || at; ELSE RETURN NEXT one; END IF;
                EXCEPTION WHEN serialization_failure THEN
                    one := (at, NULL, false, 0, false, false);
                    RETURN NEXT one;
                END;
            END LOOP;
        END;
    END IF;
    FOR tries IN 1 .. 3 LOOP
        EXIT WHEN cardinality(missing) = 0;
        gone := '{}';
        -- A new statement sees what the insert ran into.
        FOR one IN
            SELECT i.ord::int, n.id, false,
                   (SELECT count(*) FROM tidings.task t WHERE t.notification_id = n.id AND t.bucket = n.bucket)::int,
                   n.purged_at IS NULL AND n.payload_hash IS DISTINCT FROM tidings.payload_hash(i.title, i.body, i.data, i.category, i.about),
                   n.purged_at IS NOT NULL
              FROM ROWS FROM (json_to_recordset(items) AS ("user" text, event_key text, title text, body text, data jsonb,
                       category text, about jsonb)) WITH ORDINALITY AS i ("user", event_key, title, body, data, category, about, ord)
              LEFT JOIN tidings.notification n ON n.user_id = i."user" AND n.event_key = i.event_key AND n.bucket = tidings.bucket_of(i."user")
             WHERE i.ord = ANY (missing)
        LOOP
            IF one.id IS NULL AND fresh AND tries < 3 THEN
                gone := gone || one.position;
            ELSIF one.id IS NULL THEN
                one := (one.position, NULL, false, 0, false, false);
                RETURN NEXT one;
            ELSE
                RETURN NEXT one;
            END IF;
        END LOOP;
        missing := '{}';
        -- The tombstone that was in the way was deleted between the two statements: submit those again.
        FOREACH at IN ARRAY gone LOOP
            SELECT * INTO one FROM tidings.notify_rows(json_build_array(items -> (at - 1)));
            one.position := at;
            IF one.id IS NULL THEN missing := missing || at; ELSE RETURN NEXT one; END IF;
        END LOOP;
    END LOOP;
END $$;

CREATE FUNCTION tidings.notify_rows(items json) RETURNS SETOF tidings.notified
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    now_at timestamptz := statement_timestamp();
    ours   uuid := (SELECT i.id FROM tidings.installation i WHERE i.one);
    -- The ids of one call: the milliseconds and 56 random bits, with the bucket before and the position between.
    call   bytea := overlay(uuid_send(gen_random_uuid()) PLACING substr(int8send((date_part('epoch', now_at) * 1000)::bigint), 3) FROM 2);
BEGIN
    RETURN QUERY WITH item AS MATERIALIZED (
        SELECT x.*, tidings.bucket_of(x."user") AS bucket,
               tidings.payload_hash(x.title, x.body, x.data, x.category, x.about) AS payload_hash,
               greatest(now_at, x.not_before) AS from_at,
               row_number() OVER (PARTITION BY x."user" COLLATE "C", x.event_key COLLATE "C" ORDER BY x.ord) = 1 AS first
          FROM ROWS FROM (json_to_recordset(items) AS ("user" text, event_key text, title text, body text, data jsonb,
                   category text, channels text[], priority smallint, ttl_s bigint, not_before timestamptz,
                   max_attempts smallint, duplicates text, about jsonb))
               WITH ORDINALITY AS x ("user", event_key, title, body, data, category, channels, priority, ttl_s, not_before,
                   max_attempts, duplicates, about, ord)
    ), created AS (
        INSERT INTO tidings.notification AS n (id, bucket, user_id, event_key, title, body, data, category, payload_hash,
               channels, priority, max_attempts, duplicates, about_conv, about_seq, not_before, expires_at, created_at)
        SELECT encode(overlay(set_byte(call, 0, i.bucket) PLACING int2send(i.ord::smallint) FROM 8), 'hex')::uuid, i.bucket, i."user", i.event_key, i.title, i.body, i.data, i.category, i.payload_hash,
               i.channels, coalesce(i.priority, 1), coalesce(i.max_attempts, 5), coalesce(i.duplicates, 'forbid'),
               i.about ->> 'conv', (i.about ->> 'seq')::bigint, i.not_before, i.from_at + i.ttl_s * interval '1 second', now_at
          FROM item i
         WHERE i.first
         ORDER BY i."user" COLLATE "C", i.event_key COLLATE "C"
        ON CONFLICT (user_id, event_key, bucket) DO NOTHING
        RETURNING n.id, n.bucket, n.user_id, n.event_key, n.channels, n.priority, n.max_attempts, n.not_before, n.payload_hash
    ), -- edge: create
    task AS (
        INSERT INTO tidings.task AS t (id, bucket, user_id, notification_id, channel, slot, priority, state, budget_left, next_attempt_at)
        SELECT tidings.task_id(c.bucket, ours, c.user_id, c.event_key, p.channel, p.slot, c.payload_hash), c.bucket, c.user_id,
               c.id, p.channel, p.slot, c.priority, 'PENDING', c.max_attempts,
               -- a microsecond apart, so that the watermark of the claims tells the tasks of a large call apart
               greatest(now_at, c.not_before) + row_number() OVER () * interval '1 microsecond'
          FROM created c
          JOIN tidings.channel_pref p ON p.user_id = c.user_id AND p.bucket = c.bucket AND p.enabled
               AND (coalesce(cardinality(c.channels), 0) = 0 OR p.channel = ANY (c.channels))
        RETURNING t.notification_id
    )
    SELECT i.ord::int, c.id, c.id IS NOT NULL, coalesce(k.tasks, 0)::int, false, false
      FROM item i
      LEFT JOIN created c ON i.first AND c.user_id = i."user" AND c.event_key = i.event_key
      LEFT JOIN (SELECT task.notification_id, count(*) AS tasks FROM task GROUP BY 1) k ON k.notification_id = c.id;
END $$;

CREATE FUNCTION tidings.notify_v1(input json) RETURNS json
    LANGUAGE sql
    AS $$
    SELECT coalesce(json_agg(json_build_object('id', a.id, 'created', a.created, 'tasks', a.tasks,
                                               'payload_differs', a.payload_differs, 'expired', a.expired) ORDER BY a.position), '[]')
      FROM tidings.notify_batch(CASE json_typeof(input) WHEN 'array' THEN input ELSE json_build_array(input) END) a
$$;

CREATE FUNCTION tidings.payload_hash(title text, body text, data jsonb, category text, about jsonb) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256(convert_to(concat(COALESCE(octet_length(title), '-1'::integer), ',', COALESCE(octet_length(body), '-1'::integer), ',', COALESCE(octet_length((data)::text), '-1'::integer), ',', COALESCE(octet_length(category), '-1'::integer), ';', title, body, data, category, (about ->> 'conv'::text), '/', (about ->> 'seq'::text)), 'UTF8'::name));

CREATE FUNCTION tidings.task_id(bucket smallint, installation uuid, user_id text, event_key text, channel text, slot text, payload_hash bytea) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (encode(set_byte(substr(sha256((convert_to(concat(installation, '/', user_id, '/', event_key, '/', channel, '/', slot, '/'), 'UTF8'::name) || payload_hash)), 1, 16), 0, (bucket)::integer), 'hex'::text))::uuid;

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
WITH (fillfactor='55', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

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
    CONSTRAINT channel_pref_channel_check CHECK (tidings.is_id(channel)),
    CONSTRAINT channel_pref_check CHECK ((bucket = tidings.bucket_of(user_id))),
    CONSTRAINT channel_pref_slot_check CHECK (((slot = ''::text) OR tidings.is_id(slot))),
    CONSTRAINT channel_pref_user_id_check CHECK (tidings.is_id(user_id))
);

CREATE TABLE tidings.channel_state (
    channel text NOT NULL COLLATE pg_catalog."C",
    paused_until timestamp with time zone NOT NULL,
    reason text NOT NULL,
    by text NOT NULL,
    at timestamp with time zone NOT NULL
);

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
    CONSTRAINT notification_about_conv_is_an_id CHECK (tidings.is_id(about_conv)),
    CONSTRAINT notification_about_seq_out_of_range CHECK ((about_seq >= 1)),
    CONSTRAINT notification_body_too_long CHECK ((octet_length(body) <= 16384)),
    CONSTRAINT notification_category_is_an_id CHECK (tidings.is_id(category)),
    CONSTRAINT notification_check CHECK ((bucket = get_byte(uuid_send(id), 0))),
    CONSTRAINT notification_check1 CHECK (((about_conv IS NULL) = (about_seq IS NULL))),
    CONSTRAINT notification_check2 CHECK (((payload_hash IS NULL) = (purged_at IS NOT NULL))),
    CONSTRAINT notification_check3 CHECK (((purged_at IS NULL) OR ((title IS NULL) AND (body IS NULL) AND (data IS NULL) AND (channels IS NULL)))),
    CONSTRAINT notification_data_is_an_object CHECK (((jsonb_typeof(data) = 'object'::text) AND (octet_length((data)::text) <= 16384))),
    CONSTRAINT notification_duplicates_unknown CHECK ((duplicates = ANY (ARRAY['forbid'::text, 'allow'::text]))),
    CONSTRAINT notification_event_key_is_an_id CHECK (tidings.is_id(event_key)),
    CONSTRAINT notification_max_attempts_out_of_range CHECK (((max_attempts >= 1) AND (max_attempts <= 100))),
    CONSTRAINT notification_priority_unknown CHECK (((priority >= 0) AND (priority <= 2))),
    CONSTRAINT notification_title_too_long CHECK ((octet_length(title) <= 1024)),
    CONSTRAINT notification_ttl_out_of_range CHECK (((expires_at > created_at) AND (expires_at < (created_at + '800 days'::interval)))),
    CONSTRAINT notification_user_is_an_id CHECK (tidings.is_id(user_id))
);

CREATE TABLE tidings.optout (
    bucket smallint NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    category text NOT NULL COLLATE pg_catalog."C",
    channel text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT optout_category_check CHECK (tidings.is_id(category)),
    CONSTRAINT optout_channel_check CHECK (((channel = ''::text) OR tidings.is_id(channel))),
    CONSTRAINT optout_check CHECK ((bucket = tidings.bucket_of(user_id))),
    CONSTRAINT optout_user_id_check CHECK (tidings.is_id(user_id))
);

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
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='100000', autovacuum_analyze_scale_factor='0.05', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');

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

ALTER TABLE ONLY tidings.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (one);

ALTER TABLE ONLY tidings.lineage
    ADD CONSTRAINT lineage_pkey PRIMARY KEY (node);

ALTER TABLE ONLY tidings.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (id);

ALTER TABLE ONLY tidings.notification
    ADD CONSTRAINT notification_pkey PRIMARY KEY (id, bucket);

ALTER TABLE ONLY tidings.notification
    ADD CONSTRAINT notification_user_id_event_key_bucket_key UNIQUE (user_id, event_key, bucket);

ALTER TABLE ONLY tidings.optout
    ADD CONSTRAINT optout_pkey PRIMARY KEY (user_id, category, channel, bucket);

ALTER TABLE ONLY tidings.receipt
    ADD CONSTRAINT receipt_pkey PRIMARY KEY (channel, provider_msg_id, status);

ALTER TABLE ONLY tidings.task
    ADD CONSTRAINT task_notification_id_channel_slot_bucket_key UNIQUE (notification_id, channel, slot, bucket);

ALTER TABLE ONLY tidings.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id, bucket);

CREATE INDEX notification_tombstone ON tidings.notification USING btree (purged_at) WHERE (purged_at IS NOT NULL);

CREATE INDEX receipt_received ON tidings.receipt USING btree (received_at);

CREATE INDEX receipt_unmatched ON tidings.receipt USING btree (sweep_at) WHERE (matched_task IS NULL);

CREATE INDEX task_due ON tidings.task USING btree (channel, priority, next_attempt_at, id) WHERE ((state = ANY (ARRAY['PENDING'::text, 'UNKNOWN'::text])) AND (NOT needs_review));

CREATE INDEX task_lease ON tidings.task USING btree (channel, lease_until) WHERE (state = 'SENDING'::text);

CREATE INDEX task_provider_msg ON tidings.task USING btree (provider_msg_id, channel) WHERE awaits_receipt;

CREATE INDEX task_review ON tidings.task USING btree (doubt_at, id) WHERE needs_review;
