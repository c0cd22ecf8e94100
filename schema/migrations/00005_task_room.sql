-- +goose Up

-- Room on a page of tasks: the second version of each, written by the claim, finds its place beside the first, and before the third is
-- written by the finish, pruning has usually made room there. With 70, as it was, most claims went to another page: that took a seventh more of
-- PostgreSQL's processor time for each settled task (docs/benchmarks.md). Pages that are written from now on have it.
ALTER TABLE tidings.task SET (fillfactor = 42);
