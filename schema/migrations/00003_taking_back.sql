-- +goose Up

-- What is needed beside the log to take something back: a recall, the end of a retention, a removal, an erasure.

-- What notifications have to be told of a conversation: the message that they speak of was recalled, their user has read it or has
-- left. A row is written in the transaction of that event and deleted when the notifications are marked. The two are of
-- different families, so no transaction writes both.
CREATE TABLE tidings.gone (
    conv_id text COLLATE "C" NOT NULL,
    why     text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL, -- whose notifications; '' for a recall: everybody's
    seq     bigint NOT NULL,           -- a recall: of this message; a leave or read: of messages up to it
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    marked  boolean NOT NULL DEFAULT false, -- once; it is done again later, for notifications that were not committed yet
    PRIMARY KEY (conv_id, why, user_id, seq),
    CHECK (why IN ('leave', 'read') OR why = 'recall' AND user_id = '')
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX gone_unmarked ON tidings.gone (conv_id) WHERE NOT marked;
CREATE INDEX gone_marked ON tidings.gone (at) WHERE marked;

-- The notifications that can be marked, for a recall and for a leave or read.
CREATE INDEX notification_about ON tidings.notification (about_conv, about_seq) WHERE about_conv IS NOT NULL AND about_gone_at IS NULL;
CREATE INDEX notification_about_user ON tidings.notification (user_id, about_conv, about_seq) WHERE about_conv IS NOT NULL AND about_gone_at IS NULL;

-- The journal of what was taken back. A restore brings it back; so the rows are copied out of the database soon after they are
-- committed, and a recovery replays the copy. Rows are marked when they are copied: a position in them would skip one that commits late.
CREATE TABLE tidings.taken_back (
    conv_id   text COLLATE "C" NOT NULL, -- '' for an erasure, which is of no conversation
    id        uuid NOT NULL DEFAULT gen_random_uuid(),
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    what      text COLLATE "C" NOT NULL,
    mid       uuid,                      -- of a recall: the message. Its seq may be another after a restore.
    user_id   text COLLATE "C",          -- of a leave, a return and an erasure; of a recall: the message's sender
    cmid      text COLLATE "C",          -- of a recall: the message's, so that it is not stored again where a restore has lost the message
    cutoff_at timestamptz,               -- of a purge: the newest event that went; of an erasure: when
    epoch     bigint NOT NULL,           -- the history in which it was done
    copied    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (conv_id, id),
    CHECK (CASE what WHEN 'recall' THEN mid IS NOT NULL AND (user_id IS NULL) = (cmid IS NULL)
        WHEN 'purge' THEN cutoff_at IS NOT NULL
        WHEN 'erase' THEN conv_id = '' AND user_id IS NOT NULL AND cutoff_at IS NOT NULL
        ELSE what IN ('leave', 'join') AND user_id IS NOT NULL END)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX taken_back_uncopied ON tidings.taken_back (at) WHERE NOT copied;
CREATE INDEX taken_back_copied ON tidings.taken_back (at) WHERE copied;

-- The conversations that the purge looks at.
CREATE INDEX conversation_retained ON tidings.conversation (conv_id) WHERE retention_ms IS NOT NULL;

-- The content of an erased user's notification is gone, while its tasks in doubt stay.
ALTER TABLE tidings.notification ADD COLUMN erased_at timestamptz;
ALTER TABLE tidings.notification DROP CONSTRAINT notification_check3;
ALTER TABLE tidings.notification ADD CONSTRAINT notification_emptied
    CHECK ((purged_at IS NULL OR channels IS NULL) AND (coalesce(purged_at, erased_at) IS NULL OR (title IS NULL AND body IS NULL AND data IS NULL)));

-- on_log is true when the log is the very table that the caller has got to know, and fails otherwise: a dump that is restored in place makes the
-- tables anew while sessions live on, and nothing may be appended to a log that has become another.
-- +goose StatementBegin
CREATE FUNCTION tidings.on_log(known oid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF known <> 'tidings.event'::regclass::oid THEN
        RAISE EXCEPTION 'the log was replaced' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN true;
END $$;
-- +goose StatementEnd
