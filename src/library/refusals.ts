// Made by scripts/library.ts of refusals.sql. Edit that file.
export const REFUSALS_SQL = `-- typeorm-unique-text: refusals of rows, version 1. They serve rows.sql and migrations.
--
--   SELECT unique_text_refuse_rows_v1('page', 'url IS NULL', '23502', 'rows of table "page" hold NULL in "url"');
--
-- An error names at most ten rows by their primary key, or single rows by ctid without one, and counts all. When these
-- are corrected, the next error names others. No error shows a text. All functions run as their caller.

CREATE FUNCTION "unique_text_refuse_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- A policy that hides a row raises 42501.
SET row_security = off AS $refuse$
-- Raises an error if rows t of the table meet a condition. Otherwise it returns the plan:
--   condition               SQL
--   alike                   expressions: groups of rows that are equal in them are refused, and single rows are not
--   code, message, index    what the error has
DECLARE
  alike CONSTANT text := plan->>'alike';
  names text;
  keys text;
  key text;
  named text;
  total bigint;
BEGIN
  -- Groups are looked for among rows that were numbered, which have another ctid until the error undoes that.
  SELECT coalesce('primary key (' || string_agg(a.attname, ', ' ORDER BY k.o) || ')',
        CASE WHEN alike IS NULL THEN 'ctid' END),
      coalesce(string_agg(format('t.%I', a.attname), ', ' ORDER BY k.o), 't.ctid'),
      -- concat shows a value as it is. A cast to text could be one that the owner of the type has made.
      CASE WHEN count(*) > 1 THEN 'concat(ROW(%s))' ELSE 'concat(%s)' END
    INTO names, keys, key FROM pg_index AS i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, o)
    JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = on_table AND i.indisprimary;
  key := format(key, keys);
  EXECUTE format('SELECT string_agg(r.key, %L), max(r.total)
      FROM (SELECT %s AS key, count(*) OVER () AS total FROM %s AS t WHERE %s %s LIMIT 10) AS r',
      CASE WHEN alike IS NULL THEN ', ' ELSE '; ' END,
      CASE WHEN alike IS NULL THEN key ELSE format('string_agg(%s, '', '' ORDER BY %s)', key, keys) END, on_table,
      plan->>'condition', coalesce('GROUP BY ' || alike || ' HAVING count(*) > 1 ORDER BY 1', 'ORDER BY ' || keys))
    INTO named, total;
  IF named IS NULL THEN
    RETURN plan;
  END IF;
  RAISE EXCEPTION USING ERRCODE = plan->>'code', CONSTRAINT = coalesce(plan->>'index', ''),
    TABLE = (SELECT c.relname FROM pg_class AS c WHERE c.oid = on_table), MESSAGE = plan->>'message',
    DETAIL = coalesce('The rows by ' || names || ': ' || concat(named,
      CASE WHEN total > 10 THEN format(' (10 of %s are shown)', total) END), 'No primary key names the rows.');
END
$refuse$;
COMMENT ON FUNCTION "unique_text_refuse_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: names the rows that a migration refuses.';

CREATE FUNCTION "unique_text_refuse_rows_v1"(on_table pg_catalog.regclass, condition pg_catalog.text,
  code pg_catalog.text, message pg_catalog.text)
RETURNS pg_catalog.void LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_refuse_v1"(on_table,
  pg_catalog.jsonb_build_object('condition', condition, 'code', code, 'message', message));
COMMENT ON FUNCTION "unique_text_refuse_rows_v1"(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.text)
  IS 'typeorm-unique-text: raises an error if rows meet a condition.';

CREATE FUNCTION "unique_text_refuse_shards_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb DEFAULT NULL)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $shards$
-- Refuses a table that Citus has distributed. Otherwise it returns the plan.
BEGIN
  IF to_regclass('pg_dist_partition') IS NOT NULL THEN
    IF EXISTS (SELECT FROM pg_dist_partition AS d WHERE d.logicalrelid = on_table) THEN
      RAISE EXCEPTION USING ERRCODE = '55000', TABLE = (SELECT c.relname FROM pg_class AS c WHERE c.oid = on_table),
        MESSAGE = format('Citus keeps the rows of %s in shards, where hashes and numbers cannot change', on_table),
        HINT = format('Run SELECT undistribute_table(%L), then this, then distribute the table again.', on_table);
    END IF;
  END IF;
  RETURN plan;
END
$shards$;
COMMENT ON FUNCTION "unique_text_refuse_shards_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: raises an error if Citus keeps the rows of a table in shards.';

CREATE FUNCTION "unique_text_refuse_large_v1"(on_table pg_catalog.regclass, gives pg_catalog.text,
  instead pg_catalog.text)
RETURNS pg_catalog.void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $large$
-- Refuses a table on whose rows a migration would work for more than 5 seconds, while it locks everybody out. A busy
-- server with two cores takes a second for 20,000 rows or 25 MB. It sets the limits of the migration, too.
DECLARE
  table_name CONSTANT name := (SELECT c.relname FROM pg_class AS c WHERE c.oid = on_table);
  seconds numeric;
BEGIN
  BEGIN
    -- The server ends a statement whose client was killed, so that no lock remains. Not every platform can tell.
    PERFORM set_config('client_connection_check_interval', '2s', true);
  EXCEPTION WHEN OTHERS THEN
    NULL;
  END;
  -- Later sessions wait behind one that waits for a lock.
  IF current_setting('lock_timeout') = '0' THEN
    PERFORM set_config('lock_timeout', '5s', true);
  END IF;
  IF current_setting('unique_text.maintenance', true) = 'on' THEN
    RETURN;
  END IF;
  EXECUTE format('SELECT count(*) / 20000.0 FROM (SELECT 1 FROM %s LIMIT 100001) AS r', on_table) INTO seconds;
  SELECT seconds + sum(pg_table_size(p.oid)) / 25000000 INTO seconds
    FROM (SELECT on_table AS oid UNION SELECT relid FROM pg_partition_tree(on_table)) AS p;
  IF seconds > 5 THEN
    RAISE EXCEPTION USING ERRCODE = '55000', TABLE = table_name, MESSAGE = format('table "%s" is so large that this '
      || 'migration would lock everybody out for more than 5 seconds while it gives the rows their %s. %sIn a '
      || 'maintenance window set unique_text.maintenance to on (extra: { options: ''-c unique_text.maintenance=on'' } '
      || 'of the DataSource), and run it as it is.', table_name, gives, instead);
  END IF;
END
$large$;
COMMENT ON FUNCTION "unique_text_refuse_large_v1"(pg_catalog.regclass, pg_catalog.text, pg_catalog.text) IS
  'typeorm-unique-text: raises an error if a migration would take long for the rows of a table.';
`
