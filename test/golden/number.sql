
-- typeorm-unique-text numbers: generated, do not edit; see docs/numbers.md of the repository.
-- It gives a row the number after the highest of its scope.
-- {"protocol":1, "kind":"numbers", "name":"number",
-- "columns":{"number":"number","scope 0":"tenant","deleted":"deletedAt"},
-- "scope":[{"name":"tenant","type":"integer"}], "number":"number", "type":"integer", "count":true,
-- "deleted":"deletedAt", "prefix":"numbers_comment__number",
-- "triggers":["a67fb345","e28886e9","d4e62091","d804ce6c","cf954297","e195351d","cc55a471"]}
#variable_conflict use_variable
DECLARE
  plain boolean := TG_RELID OPERATOR(pg_catalog.=) pg_catalog.to_regclass('"comment"')::pg_catalog.oid;
  ours boolean;
  newest bigint;
BEGIN
  SELECT k.relkind OPERATOR(pg_catalog.=) 'r'
    AND pg_catalog.pg_get_userbyid(k.relowner) OPERATOR(pg_catalog.=) current_user
  INTO ours FROM pg_catalog.pg_class AS k
  WHERE k.oid OPERATOR(pg_catalog.=) 'numbers_comment__number_scopes'::pg_catalog.regclass;
  IF ours IS NULL THEN
    RAISE serialization_failure USING MESSAGE = 'numbers are newer than the snapshot';
  ELSIF ours AND plain THEN
    -- Most rows need no query about partitions.
  ELSIF NOT ours OR NOT EXISTS (
    SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
    WHERE p.relid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('"comment"')::pg_catalog.oid
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'what numbers the rows names another table or column than its own',
        HINT = 'Something was renamed, dropped or given away: disable the triggers, and generate a migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  -- Once for a statement that names the columns, unless it may have named the whole of a partition.
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT' OR TG_OP OPERATOR(pg_catalog.=) 'UPDATE'
    OR plain IS NOT TRUE
  THEN
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_trigger AS g
      WHERE g.tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('"comment"')::pg_catalog.oid
        AND g.tgfoid OPERATOR(pg_catalog.=) 'numbers_comment__number_place'::pg_catalog.regproc::pg_catalog.oid
        AND pg_catalog.strpos(pg_catalog.pg_get_triggerdef(g.oid),
          pg_catalog.concat(' OF ', pg_catalog.concat_ws(', ',
            pg_catalog.quote_ident('tenant'), pg_catalog.quote_ident('number'),
            pg_catalog.quote_ident('deletedAt')
          ), ' ON ')) OPERATOR(pg_catalog.>) 0
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'what numbers the rows names another table or column than its own',
        HINT = 'Something was renamed, dropped or given away: disable the triggers, and generate a migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT' THEN
    RETURN NULL;
  END IF;
  IF pg_catalog.pg_partition_root(TG_RELID) IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '0A000',
        MESSAGE = 'a table with partitions, or with children by INHERITS, keeps no count',
        HINT = 'Declare @NumberWithin without "count", and count the rows by SQL.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND NEW."number" OPERATOR(pg_catalog.=) OLD."number" THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW."number" := NULL;
  END IF;
  IF NEW."tenant" IS NULL THEN
    RETURN NEW;
  END IF;
  LOOP
    SELECT k.last INTO newest FROM numbers_comment__number_scopes AS k
    WHERE k.s0 OPERATOR(pg_catalog.=) NEW."tenant"
    FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO numbers_comment__number_scopes (s0)
    VALUES (NEW."tenant") ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  newest := greatest(newest, (
    SELECT t."number" FROM "comment" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
      AND (t.tableoid OPERATOR(pg_catalog.=) TG_RELID OR plain IS NOT TRUE)
    ORDER BY t."tenant" DESC, t."number" DESC LIMIT 1
  ));
  IF NEW."number" IS NULL AND newest OPERATOR(pg_catalog.>=) 2147483647 THEN
    RAISE EXCEPTION USING ERRCODE = '22003',
        MESSAGE = 'a row of the scope has the highest number that its type can hold',
        HINT = 'Give that row a lower number or delete it, or make the column a bigint.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  NEW."number" := coalesce(NEW."number", greatest(newest, 0) OPERATOR(pg_catalog.+) 1);
  RETURN NEW;
END


-- typeorm-unique-text numbers: generated, do not edit; see docs/numbers.md of the repository.
-- It counts the rows of each scope.
#variable_conflict use_column
DECLARE
  plain boolean := TG_RELID OPERATOR(pg_catalog.=) pg_catalog.to_regclass('"comment"')::pg_catalog.oid;
  ours boolean;
BEGIN
  SELECT k.relkind OPERATOR(pg_catalog.=) 'r'
    AND pg_catalog.pg_get_userbyid(k.relowner) OPERATOR(pg_catalog.=) current_user
  INTO ours FROM pg_catalog.pg_class AS k
  WHERE k.oid OPERATOR(pg_catalog.=) 'numbers_comment__number_scopes'::pg_catalog.regclass;
  IF ours IS NULL THEN
    RAISE serialization_failure USING MESSAGE = 'numbers are newer than the snapshot';
  ELSIF ours AND plain THEN
    -- Most rows need no query about partitions.
  ELSIF NOT ours OR NOT EXISTS (
    SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
    WHERE p.relid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('"comment"')::pg_catalog.oid
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'what numbers the rows names another table or column than its own',
        HINT = 'Something was renamed, dropped or given away: disable the triggers, and generate a migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF EXISTS (
    SELECT FROM pg_catalog.pg_inherits AS h
    WHERE h.inhrelid OPERATOR(pg_catalog.=) TG_RELID OR h.inhparent OPERATOR(pg_catalog.=) TG_RELID
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '0A000',
        MESSAGE = 'a table with partitions, or with children by INHERITS, keeps no count',
        HINT = 'Declare @NumberWithin without "count", and count the rows by SQL.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
    INSERT INTO numbers_comment__number_scopes AS k (s0, n)
    SELECT c.s0, pg_catalog.sum(c.n)
    FROM (
      SELECT came."tenant" AS s0, 1 AS n FROM came WHERE came."deletedAt" IS NULL
    ) AS c
    GROUP BY 1 HAVING pg_catalog.sum(c.n) OPERATOR(pg_catalog.<>) 0 ORDER BY 1
    ON CONFLICT (s0) DO UPDATE SET n = k.n OPERATOR(pg_catalog.+) excluded.n;
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
    INSERT INTO numbers_comment__number_scopes AS k (s0, n)
    SELECT c.s0, pg_catalog.sum(c.n)
    FROM (
      SELECT gone."tenant" AS s0, -1 AS n FROM gone WHERE gone."deletedAt" IS NULL
    ) AS c
    GROUP BY 1 HAVING pg_catalog.sum(c.n) OPERATOR(pg_catalog.<>) 0 ORDER BY 1
    ON CONFLICT (s0) DO UPDATE SET n = k.n OPERATOR(pg_catalog.+) excluded.n;
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
    INSERT INTO numbers_comment__number_scopes AS k (s0, n)
    SELECT c.s0, pg_catalog.sum(c.n)
    FROM (
      SELECT gone."tenant" AS s0, -1 AS n FROM gone WHERE gone."deletedAt" IS NULL
      UNION ALL
      SELECT came."tenant" AS s0, 1 AS n FROM came WHERE came."deletedAt" IS NULL
    ) AS c
    GROUP BY 1 HAVING pg_catalog.sum(c.n) OPERATOR(pg_catalog.<>) 0 ORDER BY 1
    ON CONFLICT (s0) DO UPDATE SET n = k.n OPERATOR(pg_catalog.+) excluded.n;
  ELSE
    TRUNCATE numbers_comment__number_scopes;
  END IF;
  RETURN NULL;
END


CREATE TRIGGER "numbers_comment__number_look" BEFORE INSERT OR DELETE OR UPDATE OF "tenant", "number", "deletedAt"
  ON "comment" FOR EACH STATEMENT EXECUTE FUNCTION "numbers_comment__number_place"()

CREATE TRIGGER "numbers_comment__number_place_insert" BEFORE INSERT ON "comment" FOR EACH ROW
  EXECUTE FUNCTION "numbers_comment__number_place"()

CREATE TRIGGER "numbers_comment__number_place_update" BEFORE UPDATE ON "comment" FOR EACH ROW
  WHEN ((OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant") IS NOT TRUE OR NEW."number" IS NULL)
  EXECUTE FUNCTION "numbers_comment__number_place"()

CREATE TRIGGER "numbers_comment__number_count_insert" AFTER INSERT
  ON "comment" REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION "numbers_comment__number_count"()

CREATE TRIGGER "numbers_comment__number_count_update" AFTER UPDATE
  ON "comment" REFERENCING OLD TABLE AS gone NEW TABLE AS came FOR EACH STATEMENT
  EXECUTE FUNCTION "numbers_comment__number_count"()

CREATE TRIGGER "numbers_comment__number_count_delete" AFTER DELETE
  ON "comment" REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION "numbers_comment__number_count"()

CREATE TRIGGER "numbers_comment__number_count_truncate" AFTER TRUNCATE ON "comment" FOR EACH STATEMENT
  EXECUTE FUNCTION "numbers_comment__number_count"()
