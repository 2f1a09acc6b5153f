// Made by scripts/library.ts of numbers.sql. Edit that file.
export const NUMBERS_SQL = `-- typeorm-unique-text: numbers within a scope, version 1.
--
--   SELECT unique_text_attach_number_v1('comment', '{"name": "number", "scope": ["post"], "index": "comment_number"}');
--   SELECT unique_text_detach_number_v1('comment', 'number');
--   SELECT unique_text_fill_number_v1('comment', '{"name": "number", "scope": ["post"]}');
--
-- A new row gets the highest number of its scope plus 1. A unique index covers scope and number. Three rules hold:
--   1. Who gives a number first locks the row of its scope in the table of scopes, until the transaction ends.
--   2. With count, n of that row is the number of rows that count. A statement adds to it, and never sets it.
--   3. Without reuse, last of that row is the highest number that was given. It is stored once the row is.
--
-- attach, detach and fill run as their caller, and the trigger function as the owner of the table. The table of scopes
-- is found by its trigger, which runs the same function and has the same owner. Its name decides nothing.
-- attach.sql makes and drops the function and triggers that this part describes.

CREATE FUNCTION "unique_text_number_code_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- PL/pgSQL reserves words that quote_ident leaves as they are otherwise, such as by and begin.
SET quote_all_identifiers = on AS $code$
-- Returns the function and triggers of a number, for unique_text_create_v1, and for unique_text_number_scopes_v1:
--   scopes, key   the name of the table of scopes, and its key as SQL
--   rows          a query for its rows
--   was           the columns that the triggers of a former declaration look at
DECLARE
  t pg_class;
  home name;
  types CONSTANT jsonb := '{"name": "string", "index": "string", "number": "string", "scope": "array",
    "count": "boolean", "reuse": "boolean", "start": "number", "deleted": "string", "citus": "boolean",
    "guard": "string", "type": "string", "former": "object", "kind": "string",
    "protocol": "number", "serves": "number"}';
  declaration jsonb := jsonb_build_object('kind', 'number', 'protocol', 1, 'number', declared->'name', 'scope',
    '[]'::jsonb, 'count', false, 'reuse', true, 'start', 1) || (declared - 'former');
  counts CONSTANT boolean := declaration->'count' = 'true';
  keeps CONSTANT boolean := declaration->'reuse' = 'false';
  citus CONSTANT boolean := coalesce(declaration->'citus' = 'true', false);
  scope CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(declaration->'scope'));
  looked CONSTANT text[] := scope || (declaration->>'number')
    || CASE WHEN counts AND declaration ? 'deleted' THEN ARRAY[declaration->>'deleted'] END;
  number CONSTANT text := quote_ident(declaration->>'number');
  live CONSTANT text := 'r.' || quote_ident(declaration->>'deleted') || ' IS NULL';
  -- The key of the table of scopes has short names, because columns may be renamed. A whole table is one scope.
  key text := 'whole';
  of_row text := 'true';
  of_rows text := 'true AS whole';
  in_scopes text := 'k.whole';
  in_scope text := 'true';
  no_scope text := 'false';
  sorted text := '';
  changed text;
  newest text;
  adds text[];
  held text;
  guard text;
  wrong text;
  scopes text;
  body text;
  was text[];
BEGIN
  SELECT e.key INTO wrong FROM jsonb_each(declared) AS e WHERE jsonb_typeof(e.value) IS DISTINCT FROM (types->>e.key)
    OR e.key = 'kind' AND e.value <> '"number"' OR e.key = 'start' AND e.value::text !~ '^[1-9][0-9]{0,17}$' LIMIT 1;
  IF wrong IS NOT NULL OR declared->>'name' IS NULL OR declared->>'index' IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = concat('a declaration has no such key or value: ', wrong),
      HINT = 'For instance {"name": "number", "scope": ["post"], "index": "comment_number"}.';
  END IF;
  -- The triggers lock the table like this. Nobody adds a row between the look at the rows and the triggers.
  EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', on_table);
  SELECT c.* INTO t FROM pg_class AS c WHERE c.oid = on_table;
  SELECT n.nspname INTO home FROM pg_namespace AS n WHERE n.oid = t.relnamespace;
  SELECT format_type(a.atttypid, NULL) INTO held FROM pg_attribute AS a
    WHERE a.attrelid = on_table AND a.attname = declaration->>'number';
  IF held IS NULL OR held NOT IN ('smallint', 'integer', 'bigint') THEN
    RAISE EXCEPTION USING ERRCODE = '42804',
      MESSAGE = format('%s must be a column of type smallint, integer or bigint', number);
  END IF;
  IF counts AND (t.relkind = 'p' OR EXISTS (
      SELECT FROM pg_inherits AS h WHERE h.inhrelid = on_table OR h.inhparent = on_table)) THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', HINT = 'Declare it without "count", and count the rows by SQL.',
      MESSAGE = 'a table with partitions, or with children by INHERITS, keeps no count';
  END IF;
  guard := coalesce(declared->>'guard', format('numbers_%s__%s', t.relname, declared->>'name'));
  IF octet_length(guard) > 49 THEN
    guard := concat('numbers_', md5(guard));
  END IF;
  scopes := format('%I.%I', home, guard || '_scopes');
  -- A function that others may execute is not ours.
  SELECT array_agg(a.attname ORDER BY c.o) INTO was FROM pg_trigger AS g
    JOIN pg_proc AS p ON p.oid = g.tgfoid CROSS JOIN unnest(g.tgattr) WITH ORDINALITY AS c (attnum, o)
    JOIN pg_attribute AS a ON a.attrelid = g.tgrelid AND a.attnum = c.attnum
    WHERE g.tgrelid = on_table AND g.tgparentid = 0 AND g.tgtype IN (22, 30) AND pg_has_role(p.proowner, 'USAGE')
      AND position(convert_to(format('"kind": "number", "name": %s', declared->'name'), 'UTF8') IN g.tgargs) > 0
      AND NOT EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
        WHERE a.grantee <> p.proowner);

  IF scope <> '{}' THEN
    SELECT string_agg(format('s%s', o - 1), ', '), string_agg(format('NEW.%s', c), ', '),
        string_agg(format('r.%s AS s%s', c, o - 1), ', '), string_agg(format('k.s%s = NEW.%s', o - 1, c), ' AND '),
        string_agg(format('t.%1$s = %2$s.%1$s', c, CASE WHEN citus THEN '($1)' ELSE 'NEW' END), ' AND '),
        string_agg(format('NEW.%s IS NULL', c), ' OR '), string_agg(format('t.%s DESC, ', c), ''),
        format('(%s) IS NOT TRUE OR ', string_agg(format('OLD.%1$s = NEW.%1$s', c), ' AND '))
      INTO key, of_row, of_rows, in_scopes, in_scope, no_scope, sorted, changed
      FROM unnest(scope) WITH ORDINALITY AS s (name, o), quote_ident(s.name) AS c;
  END IF;
  changed := concat(changed, CASE WHEN keeps THEN format('(OLD.%1$s = NEW.%1$s) IS NOT TRUE', number)
    ELSE format('NEW.%s IS NULL', number) END);
  newest := concat('SELECT t.', number, ' FROM ', CASE WHEN t.relkind = 'r' THEN 'ONLY ' END, on_table, ' AS t WHERE ',
    in_scope, ' ORDER BY ', sorted, 't.', number, ' DESC LIMIT 1');
  -- What a statement adds to the counts: INSERT, DELETE, UPDATE.
  adds := ARRAY(SELECT format('INSERT INTO %1$s AS k (%2$s, n) SELECT %2$s, sum(c.n) FROM (%3$s) AS c GROUP BY %2$s
        HAVING sum(c.n) <> 0 ORDER BY %2$s ON CONFLICT (%2$s) DO UPDATE SET n = k.n + excluded.n;', scopes, key, c)
    FROM (SELECT concat('SELECT ', of_rows, ', 1 AS n FROM came AS r', ' WHERE ' || live),
      concat('SELECT ', of_rows, ', -1 AS n FROM gone AS r', ' WHERE ' || live)) AS f (came, gone),
      unnest(ARRAY[came, gone, concat(gone, ' UNION ALL ', came)]) WITH ORDINALITY AS a (c, o) ORDER BY o);

  -- All triggers of the number run one function. What none of them runs is never parsed.
  body := format($body$
#variable_conflict use_variable
DECLARE
  -- False in a partition, and null after a rename. Children by INHERITS have their own numbers.
  plain CONSTANT boolean := TG_RELID = %1$s;
  ours boolean := true;
  newest bigint;
BEGIN
  IF TG_NARGS = 0 THEN
    RAISE EXCEPTION USING ERRCODE = '55000', TABLE = TG_TABLE_NAME,
      MESSAGE = 'counts are restored while triggers count the rows that are restored',
      HINT = 'Restore the data with --disable-triggers.';
  END IF;
  IF plain IS NOT TRUE THEN
    ours := EXISTS (SELECT FROM pg_partition_ancestors(TG_RELID) AS p WHERE p.relid = %1$s);
  END IF;
  -- A trigger follows a renamed column, and a function does not. A statement is looked at once, unless it may name none
  -- of the columns. pg_get_triggerdef uses no snapshot, and the SQL below is parsed with the present names.
  IF ours AND TG_WHEN = 'BEFORE' AND (TG_LEVEL = 'STATEMENT' OR TG_OP = 'UPDATE' OR plain IS NOT TRUE) THEN
    SELECT CASE WHEN look.oid IS NULL THEN false
        ELSE strpos(pg_get_triggerdef(look.oid), concat(' OF ', concat_ws(', ', %2$s), ' ON ')) > 0 END INTO ours
      FROM pg_trigger AS fired LEFT JOIN pg_trigger AS look
        ON look.tgrelid = fired.tgrelid AND look.tgfoid = fired.tgfoid AND look.tgtype IN (22, 30)
      WHERE fired.tgrelid = %1$s AND fired.tgname = TG_NAME;
  END IF;
  -- The code of another role's table would run as our owner. The OID is a constant of the plan, which is made anew when
  -- the name means another table.
  IF ours AND NOT %3$s AND (TG_LEVEL = 'ROW' OR TG_WHEN = 'AFTER') THEN
    SELECT k.relkind = 'r' AND pg_get_userbyid(k.relowner) = CURRENT_USER INTO ours
      FROM pg_class AS k WHERE k.oid = %4$L::regclass;
  END IF;
  IF ours IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '40001', %5$s, MESSAGE = 'numbers are newer than the snapshot';
  ELSIF NOT ours THEN
    RAISE EXCEPTION USING ERRCODE = '55000', %5$s,
      MESSAGE = 'what numbers the rows names another table or column than its own',
      HINT = 'Something was renamed, dropped or given away: disable the triggers, and generate a migration.';
  ELSIF TG_LEVEL = 'STATEMENT' AND TG_WHEN = 'BEFORE' THEN
    RETURN NULL;
  ELSIF %6$s AND (pg_partition_root(TG_RELID) IS NOT NULL OR TG_LEVEL = 'STATEMENT') THEN
    -- A statement on another table of the family fires none of these triggers, and writes the rows all the same.
    IF pg_partition_root(TG_RELID) IS NOT NULL
        OR EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhrelid = TG_RELID OR h.inhparent = TG_RELID) THEN
      RAISE EXCEPTION USING ERRCODE = '0A000', %5$s,
        MESSAGE = 'a table with partitions, or with children by INHERITS, keeps no count',
        HINT = 'Declare it without "count", and count the rows by SQL.';
    ELSIF TG_OP = 'INSERT' THEN
      %7$s
    ELSIF TG_OP = 'DELETE' THEN
      %8$s
    ELSIF TG_OP = 'UPDATE' THEN
      %9$s
    ELSIF NOT %10$s THEN
      TRUNCATE %11$s;
    ELSIF starts_with(current_setting('transaction_isolation'), 'read ') THEN
      UPDATE %11$s AS k SET n = 0 WHERE k.n <> 0;
    ELSE
      RAISE EXCEPTION USING ERRCODE = '0A000', %5$s, HINT = 'Truncate the table at READ COMMITTED.',
        MESSAGE = 'TRUNCATE removes rows that the snapshot does not show, and their count would remain';
    END IF;
    RETURN NULL;
  ELSIF TG_WHEN = 'AFTER' THEN
    -- The first row of a statement finds all others of its scope, so only one of them writes.
    IF NOT EXISTS (SELECT FROM %11$s AS k WHERE %12$s AND k.last >= NEW.%13$s) THEN
      INSERT INTO %11$s AS k (%14$s, last) VALUES (%15$s, greatest(NEW.%13$s, (%16$s)))
        ON CONFLICT (%14$s) DO UPDATE SET last = greatest(k.last, excluded.last);
    END IF;
    RETURN NULL;
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.%13$s = OLD.%13$s THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW.%13$s := NULL;
  END IF;
  IF %17$s THEN
    RETURN NEW;
  ELSIF %3$s THEN
    -- The shards have no table of scopes beside them. However many scopes a statement has, it takes one lock.
    PERFORM pg_advisory_xact_lock(hashtextextended(%18$L, TG_RELID::bigint));
    EXECUTE replace(%16$L, %19$L, TG_RELID::regclass::text) INTO newest USING NEW;
  ELSE
    -- Sessions wait here in one line. The next query has a new snapshot, which shows what earlier ones have committed.
    SELECT k.last INTO newest FROM %11$s AS k WHERE %12$s FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      INSERT INTO %11$s AS k (%14$s) VALUES (%15$s) ON CONFLICT (%14$s) DO UPDATE SET n = k.n
        RETURNING k.last INTO newest;
    END IF;
    newest := greatest(newest, (%16$s));
  END IF;
  IF NEW.%13$s IS NULL AND newest >= %20$s THEN
    RAISE EXCEPTION USING ERRCODE = '22003', %5$s, HINT = %21$L,
      MESSAGE = 'a row of the scope has the highest number that its type can hold';
  END IF;
  NEW.%13$s := coalesce(NEW.%13$s, greatest(newest, %22$s) + 1);
  RETURN NEW;
END
$body$, CASE WHEN citus THEN 'TG_RELID' ELSE format('to_regclass(%L)', format('%I.%I', home, t.relname)) END,
    (SELECT string_agg(format('quote_ident(%L)', c), ', ') FROM unnest(looked) AS c), citus::text, scopes,
    format('CONSTRAINT = %L, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME', declaration->>'index'), counts::text,
    adds[1], adds[2], adds[3], keeps::text, scopes, in_scopes, number, key, of_row, newest, no_scope, guard, on_table,
    CASE held WHEN 'smallint' THEN 32767 WHEN 'integer' THEN 2147483647 ELSE 9223372036854775807 END,
    CASE WHEN keeps THEN 'The number is not given again. Make the column a bigint.'
      ELSE 'Give that row a lower number or delete it, or make the column a bigint.' END,
    (declaration->>'start')::bigint - 1);

  -- The index decides about a row that has a number. With count the trigger fires for it all the same, because its
  -- statement may have named a parent. Without reuse it takes the lock, or it could come and go while an insert that
  -- was given its number waits at another index. UPDATE triggers name no columns: another trigger may derive the scope.
  RETURN jsonb_build_object('declaration', declaration || jsonb_build_object('type', held), 'guard', guard, 'main', 7,
    'functions', jsonb_build_array(jsonb_build_object('name', guard, 'body', body)),
    'triggers', (SELECT jsonb_agg(jsonb_build_object('type', v.type, 'suffix', v.suffix, 'runs', 1, 'fires',
        concat(v.fires, ' ON ', on_table, ' ', CASE v.level WHEN 'STATEMENT' THEN 'REFERENCING ' || v.given END,
          ' FOR EACH ', v.level, CASE v.level WHEN 'ROW' THEN ' WHEN (' || v.given || ')' END))) FROM (VALUES
      (CASE WHEN counts THEN 30 ELSE 22 END, '_look', true, concat(
        CASE WHEN counts THEN 'BEFORE INSERT OR DELETE' ELSE 'BEFORE INSERT' END,
        ' OR UPDATE OF ', (SELECT string_agg(quote_ident(c), ', ') FROM unnest(looked) AS c)), 'STATEMENT', NULL),
      (7, '_place_insert', true, 'BEFORE INSERT', 'ROW',
        CASE WHEN NOT counts AND NOT keeps THEN format('NEW.%s IS NULL', number) END),
      (19, '_place_update', true, 'BEFORE UPDATE', 'ROW', changed),
      (5, '_keep_insert', keeps, 'AFTER INSERT', 'ROW', NULL),
      (17, '_keep_update', keeps, 'AFTER UPDATE', 'ROW', changed),
      (4, '_count_insert', counts, 'AFTER INSERT', 'STATEMENT', 'NEW TABLE AS came'),
      (16, '_count_update', counts, 'AFTER UPDATE', 'STATEMENT', 'OLD TABLE AS gone NEW TABLE AS came'),
      (8, '_count_delete', counts, 'AFTER DELETE', 'STATEMENT', 'OLD TABLE AS gone'),
      (32, '_count_truncate', counts, 'AFTER TRUNCATE', 'STATEMENT', NULL)
    ) AS v (type, suffix, wanted, fires, level, given) WHERE v.wanted),
    'scopes', guard || '_scopes', 'key', key, 'was', was, 'former_scopes', declared->'former',
    -- Without rows it is empty, even if the whole table is one scope, because a restore fills it.
    'rows', format('SELECT %s, %s AS n, %s::bigint AS last FROM %s AS r GROUP BY %s WITH %s DATA', of_rows,
      CASE WHEN counts THEN concat('count(*)', ' FILTER (WHERE ' || live || ')') ELSE '0::bigint' END,
      CASE WHEN keeps THEN format('max(r.%s)', number) ELSE 'NULL' END,
      concat(CASE WHEN counts THEN 'ONLY ' END, on_table),
      (SELECT string_agg(o::text, ', ') FROM generate_series(1, greatest(cardinality(scope), 1)) AS o),
      CASE WHEN NOT counts AND NOT keeps THEN 'NO' END));
END
$code$;
COMMENT ON FUNCTION "unique_text_number_code_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: the function and triggers that unique_text_attach_number_v1 makes.';

CREATE FUNCTION "unique_text_number_scopes_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- A policy that hides a row raises 42501. It would be missing in a count.
SET row_security = off AS $scopes$
-- Makes the table of scopes. Numbers that are not given again go over from a former one, which is dropped.
DECLARE
  t pg_class;
  declaration CONSTANT jsonb := plan->'declaration';
  scope CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(declaration->'scope'));
  keeps CONSTANT boolean := declaration->'reuse' = 'false';
  counts CONSTANT boolean := declaration->'count' = 'true';
  citus CONSTANT boolean := coalesce(declaration->'citus' = 'true', false);
  key CONSTANT text := plan->>'key';
  was text[] := ARRAY(SELECT jsonb_array_elements_text(nullif(plan->'was', 'null')));
  scopes text;
  -- A function that others may execute, or that numbers another table, is not ours.
  functions oid[] := ARRAY(SELECT p.oid FROM pg_proc AS p WHERE plan->'former' @> to_jsonb(p.oid)
    AND pg_has_role(p.proowner, 'USAGE') AND NOT EXISTS (
      SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee <> p.proowner)
    AND NOT EXISTS (SELECT FROM pg_trigger AS g
      WHERE g.tgfoid = p.oid AND g.tgnargs = 1 AND g.tgparentid = 0 AND g.tgrelid <> on_table));
  former oid[] := '{}';
  -- FirstNormalObjectId of PostgreSQL. The server itself gives out the OIDs below.
  first_of_users CONSTANT oid := 16384;
  one record;
BEGIN
  SELECT c.* INTO t FROM pg_class AS c WHERE c.oid = on_table;
  scopes := format('%s.%I', t.relnamespace::regnamespace, plan->>'scopes');
  FOR one IN SELECT k.oid, k.relname, k.relkind, k.relowner, p.oid AS function, p.proowner
      FROM pg_class AS k LEFT JOIN (pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid AND g.tgnargs = 0)
        ON g.tgrelid = k.oid
      WHERE p.oid = ANY (functions) OR k.relnamespace = t.relnamespace
        AND k.relname IN (plan->>'scopes', plan->'former_scopes'->>'scopes') LOOP
    IF one.relkind <> 'r' OR one.relowner <> t.relowner
        AND (keeps OR one.relowner IS DISTINCT FROM one.proowner OR one.function <> ALL (functions)) THEN
      RAISE EXCEPTION USING ERRCODE = '55000', TABLE = one.relname,
        MESSAGE = 'the table of scopes does not belong to the owner of the numbered table',
        HINT = 'See who made it and what it holds; then drop it, or give it to the owner of the numbered table.';
    ELSIF one.function = ANY (functions) THEN
      former := former || one.oid;
    ELSIF NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgfoid = one.function AND g.tgrelid <> one.oid) THEN
      -- detach has kept it, or it has lost its trigger.
      former := former || one.oid;
      functions := functions || one.function;
      was := CASE WHEN jsonb_typeof(plan->'former_scopes') = 'object' OR one.function IS NULL THEN ARRAY(
        SELECT jsonb_array_elements_text(coalesce(plan->'former_scopes'->'scope', declaration->'scope'))) END;
    ELSIF EXISTS (SELECT FROM pg_trigger AS g JOIN pg_class AS c ON c.oid = g.tgrelid
        JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE g.tgfoid = one.function AND g.tgnargs = 1
          AND convert_from(substring(g.tgargs FROM 1 FOR octet_length(g.tgargs) - 1), 'UTF8')::jsonb->'on'
            = jsonb_build_array(n.nspname, c.relname)) THEN
      RAISE EXCEPTION USING ERRCODE = '55000', TABLE = one.relname,
        MESSAGE = 'another number has this table of scopes', HINT = 'Give the number another name by the key guard.';
    END IF;
    -- Otherwise it is that of a table that was renamed, whose triggers refuse to write.
    IF one.relname = plan->>'scopes' THEN
      EXECUTE format('ALTER TABLE %s RENAME TO %I', one.oid::regclass, concat('numbers_', one.oid, '_scopes'));
    END IF;
  END LOOP;

  IF NOT citus THEN
    IF (counts OR keeps) AND NOT starts_with(current_setting('transaction_isolation'), 'read ') AND EXISTS (
        WITH RECURSIVE tables AS (SELECT on_table::oid AS oid
          UNION SELECT i.inhrelid FROM tables AS p JOIN pg_inherits AS i ON i.inhparent = p.oid)
        SELECT FROM tables AS p WHERE pg_relation_size(p.oid) > 0) THEN
      RAISE EXCEPTION USING ERRCODE = '0A000', HINT = 'SET default_transaction_isolation = ''read committed'';',
        MESSAGE = 'rows can be counted at READ COMMITTED only: an older snapshot shows not all rows';
    END IF;
    -- After a crash, an UNLOGGED table is empty, and so must be its counts.
    EXECUTE format('CREATE %s TABLE %s WITH (fillfactor = 50) AS %s',
      CASE t.relpersistence WHEN 'u' THEN 'UNLOGGED' END, scopes, plan->>'rows');
    EXECUTE format('ALTER TABLE %s ADD PRIMARY KEY (%s), ALTER n SET NOT NULL, ALTER n SET DEFAULT 0', scopes, key);
    EXECUTE format('CREATE TRIGGER restore_with_disable_triggers BEFORE INSERT ON %s FOR EACH ROW
      WHEN (pg_trigger_depth() = 0 AND NEW.n <> 0) EXECUTE FUNCTION %s()', scopes,
      (plan->'made'->>0)::oid::regproc);
  END IF;
  FOR one IN SELECT o.oid, (SELECT count(*) FROM pg_attribute AS a WHERE a.attrelid = o.oid AND a.attname ~ '^s[0-9]+$')
      AS width FROM unnest(former) AS o (oid) LOOP
    IF keeps AND scope <@ was AND cardinality(scope) = one.width THEN
      -- A type of the owner has casts of the owner, which would run as the caller. Those of PostgreSQL itself are safe.
      IF EXISTS (SELECT FROM pg_attribute AS k LEFT JOIN pg_attribute AS w ON w.attrelid = one.oid AND w.attname
            = CASE WHEN k.attname ~ '^s'
              THEN concat('s', array_position(was, scope[substr(k.attname, 2)::integer + 1]) - 1) ELSE k.attname END
          WHERE k.attrelid = scopes::regclass AND k.attnum > 0 AND k.attname <> 'n' AND (w.atttypid = k.atttypid
            OR greatest(w.atttypid, k.atttypid) < first_of_users) IS NOT TRUE) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', TABLE = one.oid::regclass::text,
          MESSAGE = 'the table of scopes has columns of other types than the numbered table',
          HINT = 'See who changed it. Give its columns the types of the scope, and bigint to the last number.';
      END IF;
      EXECUTE format('INSERT INTO %1$s AS k (%2$s, last) SELECT %3$s, w.last FROM %4$s AS w WHERE w.last IS NOT NULL
          ON CONFLICT (%2$s) DO UPDATE SET last = greatest(k.last, excluded.last)', scopes, key,
        coalesce((SELECT string_agg(format('w.s%s', array_position(was, c) - 1), ', ' ORDER BY o)
          FROM unnest(scope) WITH ORDINALITY AS s (c, o)), 'w.whole'), one.oid::regclass);
    END IF;
    EXECUTE format('DROP TABLE %s', one.oid::regclass);
  END LOOP;
  -- Nobody else may write, whatever default privileges grant. Who may read the table may read its scopes.
  FOR one IN SELECT concat(v.command, CASE v.role WHEN 0 THEN 'PUBLIC' ELSE v.role::regrole::text END) AS command FROM (
      SELECT format('REVOKE ALL ON %s FROM ', scopes), a.grantee
        FROM pg_class AS k, aclexplode(k.relacl) AS a WHERE k.oid = to_regclass(scopes) AND a.grantee <> k.relowner
      UNION ALL SELECT format('ALTER TABLE %s OWNER TO ', scopes), t.relowner WHERE NOT citus
      UNION ALL SELECT format('GRANT SELECT ON %s TO ', scopes), a.grantee FROM aclexplode(t.relacl) AS a
        WHERE NOT citus AND a.privilege_type = 'SELECT' AND a.grantee <> t.relowner) AS v (command, role) LOOP
    EXECUTE one.command;
  END LOOP;
  IF NOT citus AND NOT EXISTS (SELECT FROM pg_class AS k JOIN pg_trigger AS g ON g.tgrelid = k.oid
      WHERE k.oid = to_regclass(scopes) AND k.relnamespace = t.relnamespace AND plan->'made' @> to_jsonb(g.tgfoid)) THEN
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the schema was renamed meanwhile';
  END IF;
  RETURN plan || jsonb_build_object('former', functions);
END
$scopes$;
COMMENT ON FUNCTION "unique_text_number_scopes_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: makes the table of scopes of a number.';

CREATE FUNCTION "unique_text_attach_number_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb)
RETURNS pg_catalog.void LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_clean_v1"(on_table, "unique_text_number_scopes_v1"(on_table,
  "unique_text_create_v1"(on_table, "unique_text_number_code_v1"(on_table, declared))));
COMMENT ON FUNCTION "unique_text_attach_number_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: numbers the rows of a table by triggers. unique_text_detach_number_v1 removes them.';

CREATE FUNCTION "unique_text_number_drop_scopes_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb,
  kept_as pg_catalog.text)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $drop_scopes$
-- Drops the table of scopes, or gives it another name if an attach is to go on from it.
DECLARE
  one record;
BEGIN
  FOR one IN SELECT k.oid::regclass AS name FROM pg_trigger AS g JOIN pg_class AS k ON k.oid = g.tgrelid
      JOIN pg_proc AS p ON p.oid = g.tgfoid
      WHERE plan->'former' @> to_jsonb(p.oid) AND g.tgnargs = 0 AND k.relkind = 'r' AND k.relowner = p.proowner
        AND pg_has_role(p.proowner, 'USAGE') AND NOT EXISTS (
          SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee <> p.proowner)
        AND NOT EXISTS (SELECT FROM pg_trigger AS o
          WHERE o.tgfoid = p.oid AND o.tgnargs = 1 AND o.tgparentid = 0 AND o.tgrelid <> on_table)
  LOOP
    EXECUTE CASE WHEN kept_as IS NULL THEN format('DROP TABLE %s', one.name)
      ELSE format('ALTER TABLE %s RENAME TO %I', one.name, kept_as) END;
  END LOOP;
  RETURN plan;
END
$drop_scopes$;
COMMENT ON FUNCTION "unique_text_number_drop_scopes_v1"(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.text) IS
  'typeorm-unique-text: drops the table of scopes of a number.';

-- Column and index remain. Returns whether there were any triggers.
CREATE FUNCTION "unique_text_detach_number_v1"(on_table pg_catalog.regclass, property pg_catalog.text,
  kept_as pg_catalog.text DEFAULT NULL)
RETURNS pg_catalog.bool LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_clean_v1"(on_table, "unique_text_number_drop_scopes_v1"(on_table,
  "unique_text_drop_v1"(on_table, 'number'::pg_catalog.text, property), kept_as));
COMMENT ON FUNCTION "unique_text_detach_number_v1"(pg_catalog.regclass, pg_catalog.text, pg_catalog.text) IS
  'typeorm-unique-text: removes what unique_text_attach_number_v1 made for a number. Its column and index remain.';

CREATE FUNCTION "unique_text_fill_number_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb,
  anew pg_catalog.bool DEFAULT false)
RETURNS pg_catalog.void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = on
SET row_security = off AS $fill$
-- Numbers rows that have no number, in the order of the primary key, after the highest of their scope. Or numbers all
-- rows anew, if the unique index does not exist yet. The triggers of the number do not exist in either case.
DECLARE
  number CONSTANT text := quote_ident(coalesce(declared->>'number', declared->>'name'));
  scope CONSTANT text := 'PARTITION BY ' || (
    SELECT string_agg('r.' || quote_ident(c), ', ') FROM jsonb_array_elements_text(declared->'scope') AS c);
  sorted CONSTANT text := coalesce((SELECT string_agg(format('r.%I', a.attname), ', ' ORDER BY k.o) FROM pg_index AS i
    CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, o) JOIN pg_attribute AS a
      ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE i.indrelid = on_table AND i.indisprimary), 'r.ctid');
BEGIN
  EXECUTE format('UPDATE %1$s AS t SET %2$s = n.n FROM (SELECT r.tableoid, r.ctid, %3$s AS n FROM %1$s AS r) AS n
      WHERE t.tableoid = n.tableoid AND t.ctid = n.ctid AND (t.%2$s = n.n) IS NOT TRUE AND (%4$s OR t.%2$s IS NULL)',
    on_table, number, format(CASE WHEN anew THEN 'row_number() OVER (%2$s ORDER BY %3$s) + %4$s'
      ELSE 'greatest(max(r.%1$s) OVER (%2$s), %4$s) + count(*) FILTER (WHERE r.%1$s IS NULL) OVER (%2$s ORDER BY %3$s
        ROWS UNBOUNDED PRECEDING)' END, number, scope, sorted, coalesce((declared->>'start')::bigint, 1) - 1),
    anew::text);
END
$fill$;
COMMENT ON FUNCTION "unique_text_fill_number_v1"(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.bool) IS
  'typeorm-unique-text: numbers rows that exist already, before unique_text_attach_number_v1.';
`
