-- typeorm-unique-text: hashes and numbers of rows that exist already, version 1.
--
--   SELECT unique_text_fill_v1('page', '{"name": "url", "text": ["url"], "index": "page_url"}');
--
-- fill gives each row the hash, number and flag by which unique_text_attach_v1 goes on, and writes only rows that
-- differ. The rows of a chain are numbered from 0, in the order of their former numbers, then of the primary key. The
-- row at 0 is flagged if it is not alone. A row without a text, or one that is deleted softly, is in no chain, and has
-- number 0. The triggers, the unique index and the check do not exist meanwhile, so rows are looked at once more after
-- the user's triggers have run: nothing else proves what these wrote. All functions run as their caller.

CREATE FUNCTION "unique_text_number_rows_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb, path pg_catalog.text)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- Otherwise row security could hide rows, which would silently stay as they are. Off, it raises 42501.
SET row_security = off AS $rows$
-- Numbers the rows for a plan of unique_text_code_v1. Adds to the plan how many rows were due, and which rows
-- unique_text_refuse_v1 refuses, because they hold the same text. If a plan has due rows already, none may be due now.
DECLARE
  declaration CONSTANT jsonb := plan->'declaration';
  t pg_class;
  texts CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(declaration->'text'));
  scopes CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(declaration->'scope'));
  hash CONSTANT text := quote_ident(declaration->>'hash');
  number CONSTANT text := quote_ident(declaration->>'number');
  flag CONSTANT text := quote_ident(declaration->>'chained');
  deleted CONSTANT text := quote_ident(declaration->>'deleted');
  -- A chain is in one table: a child by INHERITS has no index of ours, and must leave no gap in the table's numbers.
  plain boolean;
  chain text;
  hashed text := plan->>'hashed';
  in_chain CONSTANT text := concat('h.hash IS NOT NULL', ' AND new.' || deleted || ' IS NULL');
  sorted CONSTANT text := coalesce((SELECT string_agg(format('new.%I', a.attname), ', ' ORDER BY k.o) FROM pg_index AS i
    CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, o) JOIN pg_attribute AS a
      ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE i.indrelid = on_table AND i.indisprimary), 'new.ctid');
  due bigint;
BEGIN
  IF plan->'due' = '0' THEN
    RETURN plan;
  END IF;
  SELECT c.* INTO t FROM pg_class AS c WHERE c.oid = on_table;
  plain := t.relkind <> 'p';
  -- The lock does not help a snapshot that is older: it hides what was written before the lock was there.
  IF NOT starts_with(current_setting('transaction_isolation'), 'read ') THEN
    RAISE EXCEPTION USING ERRCODE = '55000', TABLE = t.relname,
      MESSAGE = format('rows of table "%s" can be numbered at READ COMMITTED only', t.relname),
      DETAIL = concat('The transaction is ', current_setting('transaction_isolation')),
      HINT = 'Set default_transaction_isolation for the connection that runs migrations.';
  END IF;
  chain := concat_ws(', ', CASE WHEN plain THEN 'new.tableoid' END, (
    SELECT string_agg(format('new.%I', c), ', ') FROM unnest(scopes) AS c), 'h.hash', 'new.' || deleted || ' IS NULL');
  IF declaration->'nullable' = 'true' THEN
    hashed := format('CASE WHEN num_nonnulls(%s) > 0 THEN %s END', (
      SELECT string_agg(format('new.%I', c), ', ') FROM unnest(texts) AS c), hashed);
  END IF;
  -- A user's trigger may change or drop any row, and gets the path of the caller. All names are found before that.
  EXECUTE format('
    WITH numbered AS (
      SELECT new.tableoid AS part, new.ctid AS spot, new.%2$s AS old_hash, new.%3$s AS old_number, new.%4$s AS old_flag,
          h.hash, CASE WHEN %5$s THEN row_number() OVER (chain ORDER BY new.%3$s, %6$s) - 1 ELSE 0 END AS number,
          %5$s AND count(*) OVER chain > 1 AS several
        FROM %1$s AS new CROSS JOIN LATERAL (SELECT %7$s AS hash) AS h WINDOW chain AS (PARTITION BY %8$s)
    ), wanted AS (
      SELECT part, spot, hash, number, several AND number = 0 AS flag FROM numbered
        WHERE (old_hash, old_number, old_flag) IS DISTINCT FROM (hash, number, several AND number = 0)
    ), made AS (
      UPDATE %1$s AS t SET %2$s = w.hash, %3$s = w.number, %4$s = w.flag
        FROM wanted AS w, set_config(''search_path'', $1, true) WHERE t.tableoid = w.part AND t.ctid = w.spot
    )
    SELECT count(*) FROM wanted', on_table, hash, number, flag, in_chain, sorted, hashed, chain) INTO due USING path;
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  IF plan ? 'due' AND due > 0 THEN
    RAISE EXCEPTION USING ERRCODE = '55000', TABLE = t.relname, DETAIL = concat('Rows: ', due),
      MESSAGE = format('a trigger on table "%s" undid the numbering of "%s". Disable it while this runs.', t.relname,
        declaration->>'name');
  END IF;
  -- Only texts of a chain with several rows are compared.
  RETURN plan || jsonb_build_object('due', due, 'code', '23505', 'index', declaration->'index',
    'condition', concat(format('(t.%s > 0 OR t.%s)', number, flag),
      CASE WHEN plain THEN format(' AND t.tableoid = %L', t.oid) END),
    'alike', array_to_string(ARRAY(SELECT format('t.%I', c) FROM unnest(scopes) AS c) || ('t.' || hash)
      || ARRAY(SELECT format('t.%I::text COLLATE "C"', c) FROM unnest(texts) AS c), ', '),
    'message', format('rows of table "%s" hold the same text for "%s". '
      || 'Of each group delete or change all but one, then run this again.', t.relname, declaration->>'name'));
END
$rows$;
COMMENT ON FUNCTION "unique_text_number_rows_v1"(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.text) IS
  'typeorm-unique-text: gives rows their hashes and numbers.';

-- It has no path of its own, to pass on the one of its caller. All that it calls was found when it was created.
CREATE FUNCTION "unique_text_fill_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb)
RETURNS pg_catalog.void LANGUAGE sql
RETURN "unique_text_number_rows_v1"(on_table, "unique_text_refuse_v1"(on_table, "unique_text_number_rows_v1"(on_table,
  "unique_text_refuse_shards_v1"(on_table, "unique_text_code_v1"(on_table, declared, ''::pg_catalog.text)),
  pg_catalog.current_setting('search_path'))),
  pg_catalog.current_setting('search_path'));
COMMENT ON FUNCTION "unique_text_fill_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: gives rows that exist already their hashes and numbers, before unique_text_attach_v1.';
