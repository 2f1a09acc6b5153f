
-- typeorm-unique-text numbers: generated, do not edit.
-- It gives a row the number after the highest "number" of its scope.
-- docs/numbers.md of the package says what it does, and why no two rows get one number.
-- {"protocol":1, "kind":"numbers", "name":"number",
-- "columns":{"number":"number","scope 0":"tenant","count":"number count","deleted":"deletedAt"},
-- "scope":[{"name":"tenant","textual":false}], "number":"number", "count":"number count",
-- "deleted":"deletedAt", "triggers":["ba78684f","32754bfd","dea8463b","31d3cfa5","ad71fd9b"]}
#variable_conflict use_variable
DECLARE
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'comment'
    AND pg_catalog.pg_table_is_visible(TG_RELID);
  home pg_catalog.oid := TG_RELID;
  stays boolean := TG_OP = 'UPDATE'
    AND ROW(OLD."tenant")
      IS NOT DISTINCT FROM ROW(NEW."tenant");
  begun boolean := false;
  oldest bigint;
  newest bigint;
  scopes integer;
BEGIN
  IF plain IS NOT TRUE THEN
    -- Not the table that these queries name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = pg_catalog.to_regclass('"comment"')::pg_catalog.oid
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the guard names another table or column than its own',
        HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  IF NOT plain THEN
    -- Partitions share their locks.
    home := pg_catalog.to_regclass('"comment"');
  END IF;
  NEW."number count" := CASE WHEN stays THEN OLD."number count" END;
  IF stays AND NEW."number" IS NOT NULL THEN
    RETURN NEW;
  ELSIF TG_OP = 'UPDATE' AND NEW."number" IS NOT DISTINCT FROM OLD."number" THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW."number" := NULL;
  END IF;
  LOOP
    -- Nobody else adds a row to the scope before this transaction ends. A delete of this row is waited for.
    SELECT t."number" INTO oldest FROM "comment" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
    ORDER BY t."tenant", t."number" LIMIT 1
    FOR NO KEY UPDATE;
    IF FOUND THEN
      SELECT t."number" INTO newest FROM "comment" AS t
      WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
        AND (t.tableoid = TG_RELID OR NOT plain)
      ORDER BY t."tenant" DESC, t."number" DESC LIMIT 1;
      -- Whoever was waited for may have given the row another number, and others hold the oldest by now.
      EXIT WHEN NOT EXISTS (
        SELECT FROM "comment" AS t
        WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
          AND (t.tableoid = TG_RELID OR NOT plain)
          AND t."number" OPERATOR(pg_catalog.<) oldest
      );
      CONTINUE;
    END IF;
    -- The scope is empty, and nobody else begins it meanwhile.
    EXIT WHEN begun;
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(home::pg_catalog.int4, 310931357);
    scopes := 1
      + coalesce(nullif(pg_catalog.current_setting('unique_text.scopes_begun', true), ''), '0')::pg_catalog.int4;
    PERFORM pg_catalog.set_config('unique_text.scopes_begun', scopes::pg_catalog.text, true);
    -- The server's table of locks is small: whoever begins very many scopes tries to keep everybody out of new ones.
    IF scopes <= 1000 OR NOT pg_catalog.pg_try_advisory_xact_lock(home::pg_catalog.int4, 310931357) THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(
        home::pg_catalog.int4,
        pg_catalog.hash_record(ROW(310931357, NEW."tenant"))
      );
    END IF;
    begun := true;
  END LOOP;
  NEW."number" := coalesce(NEW."number", greatest(newest, 0) + 1, 1);
  RETURN NEW;
END

-- typeorm-unique-text numbers: generated, do not edit.
-- It keeps the number of rows in "number count" after each insert.
-- docs/numbers.md of the package says what it does, and why no two rows get one number.
#variable_conflict use_variable
DECLARE
  -- Rows of a partitioned table are in its partitions.
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'comment'
    AND pg_catalog.pg_table_is_visible(TG_RELID)
    AND pg_catalog.pg_partition_root(TG_RELID) IS NULL;
  oldest bigint;
  r record;
BEGIN
  IF plain IS NOT TRUE THEN
    -- Not the table that these queries name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = pg_catalog.to_regclass('"comment"')::pg_catalog.oid
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the guard names another table or column than its own',
        HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  FOR r IN
    SELECT c."tenant", pg_catalog.count(*) FILTER (WHERE c."deletedAt" IS NULL) AS "changed by"
    FROM came AS c GROUP BY c."tenant" ORDER BY c."tenant"
  LOOP
    UPDATE "comment" AS t SET "number count" = t."number count" + r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number count" IS NOT NULL;
    CONTINUE WHEN FOUND;
    -- No row that could be seen holds it: the scope is new, or that row is gone.
    SELECT t."number" INTO oldest FROM "comment" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
    ORDER BY t."tenant", t."number" LIMIT 1
    FOR NO KEY UPDATE;
    -- No row is left.
    CONTINUE WHEN NOT FOUND;
    -- Another transaction, which was waited for, may have chosen one.
    UPDATE "comment" AS t SET "number count" = t."number count" + r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number count" IS NOT NULL;
    CONTINUE WHEN FOUND;
    UPDATE "comment" AS t SET "number count" = r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number" OPERATOR(pg_catalog.=) oldest;
  END LOOP;
  RETURN NULL;
END

-- typeorm-unique-text numbers: generated, do not edit.
-- It keeps the number of rows in "number count" after each update.
-- docs/numbers.md of the package says what it does, and why no two rows get one number.
#variable_conflict use_variable
DECLARE
  -- Rows of a partitioned table are in its partitions.
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'comment'
    AND pg_catalog.pg_table_is_visible(TG_RELID)
    AND pg_catalog.pg_partition_root(TG_RELID) IS NULL;
  oldest bigint;
  r record;
BEGIN
  IF plain IS NOT TRUE THEN
    -- Not the table that these queries name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = pg_catalog.to_regclass('"comment"')::pg_catalog.oid
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the guard names another table or column than its own',
        HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  FOR r IN
    SELECT c."tenant", pg_catalog.sum(c."live by")
        + CASE WHEN pg_catalog.sum(c."held by") < 0 THEN pg_catalog.max(c."number count") ELSE 0 END AS "changed by"
    FROM (
      SELECT "tenant", "number count", -1 AS "rows by",
        CASE WHEN "deletedAt" IS NULL THEN -1 ELSE 0 END AS "live by",
        CASE WHEN "number count" IS NOT NULL THEN -1 ELSE 0 END AS "held by"
      FROM gone
      UNION ALL
      SELECT "tenant", "number count", 1 AS "rows by",
        CASE WHEN "deletedAt" IS NULL THEN 1 ELSE 0 END AS "live by",
        CASE WHEN "number count" IS NOT NULL THEN 1 ELSE 0 END AS "held by"
      FROM came
    ) AS c GROUP BY c."tenant"
    -- An UPDATE of other columns comes to nothing, and so does ours.
    HAVING pg_catalog.sum(c."rows by") <> 0 OR pg_catalog.sum(c."live by") <> 0 OR pg_catalog.sum(c."held by") < 0
    ORDER BY c."tenant"
  LOOP
    UPDATE "comment" AS t SET "number count" = t."number count" + r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number count" IS NOT NULL;
    CONTINUE WHEN FOUND;
    -- No row that could be seen holds it: the scope is new, or that row is gone.
    SELECT t."number" INTO oldest FROM "comment" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
    ORDER BY t."tenant", t."number" LIMIT 1
    FOR NO KEY UPDATE;
    -- No row is left.
    CONTINUE WHEN NOT FOUND;
    -- Another transaction, which was waited for, may have chosen one.
    UPDATE "comment" AS t SET "number count" = t."number count" + r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number count" IS NOT NULL;
    CONTINUE WHEN FOUND;
    UPDATE "comment" AS t SET "number count" = r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number" OPERATOR(pg_catalog.=) oldest;
  END LOOP;
  RETURN NULL;
END

-- typeorm-unique-text numbers: generated, do not edit.
-- It keeps the number of rows in "number count" after each delete.
-- docs/numbers.md of the package says what it does, and why no two rows get one number.
#variable_conflict use_variable
DECLARE
  -- Rows of a partitioned table are in its partitions.
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'comment'
    AND pg_catalog.pg_table_is_visible(TG_RELID)
    AND pg_catalog.pg_partition_root(TG_RELID) IS NULL;
  oldest bigint;
  r record;
BEGIN
  IF plain IS NOT TRUE THEN
    -- Not the table that these queries name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = pg_catalog.to_regclass('"comment"')::pg_catalog.oid
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the guard names another table or column than its own',
        HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  FOR r IN
    SELECT g."tenant", coalesce(pg_catalog.max(g."number count"), 0)
        - pg_catalog.count(*) FILTER (WHERE g."deletedAt" IS NULL) AS "changed by"
    FROM gone AS g GROUP BY g."tenant"
    HAVING pg_catalog.bool_or(g."deletedAt" IS NULL OR g."number count" IS NOT NULL) ORDER BY g."tenant"
  LOOP
    UPDATE "comment" AS t SET "number count" = t."number count" + r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number count" IS NOT NULL;
    CONTINUE WHEN FOUND;
    -- No row that could be seen holds it: the scope is new, or that row is gone.
    SELECT t."number" INTO oldest FROM "comment" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
    ORDER BY t."tenant", t."number" LIMIT 1
    FOR NO KEY UPDATE;
    -- No row is left.
    CONTINUE WHEN NOT FOUND;
    -- Another transaction, which was waited for, may have chosen one.
    UPDATE "comment" AS t SET "number count" = t."number count" + r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number count" IS NOT NULL;
    CONTINUE WHEN FOUND;
    UPDATE "comment" AS t SET "number count" = r."changed by"
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."number" OPERATOR(pg_catalog.=) oldest;
  END LOOP;
  RETURN NULL;
END

CREATE TRIGGER "numbers_comment.number_place_insert"
  BEFORE INSERT ON "comment" FOR EACH ROW
  EXECUTE FUNCTION "numbers_comment.number_place"()

CREATE TRIGGER "numbers_comment.number_place_update"
  BEFORE UPDATE OF "tenant", "number", "number count" ON "comment" FOR EACH ROW
  WHEN ((OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant") IS NOT TRUE
    OR NEW."number" IS NULL
    OR OLD."number count" IS DISTINCT FROM NEW."number count" AND pg_catalog.pg_trigger_depth() = 0)
  EXECUTE FUNCTION "numbers_comment.number_place"()

CREATE TRIGGER "numbers_comment.number_count_insert"
  AFTER INSERT ON "comment"
  REFERENCING NEW TABLE AS came FOR EACH STATEMENT
  EXECUTE FUNCTION "numbers_comment.number_count_insert"()

CREATE TRIGGER "numbers_comment.number_count_update"
  AFTER UPDATE ON "comment"
  REFERENCING OLD TABLE AS gone NEW TABLE AS came FOR EACH STATEMENT
  EXECUTE FUNCTION "numbers_comment.number_count_update"()

CREATE TRIGGER "numbers_comment.number_count_delete"
  AFTER DELETE ON "comment"
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
  EXECUTE FUNCTION "numbers_comment.number_count_delete"()
