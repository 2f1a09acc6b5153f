-- typeorm-unique-text: unique texts, version 1.
--
--   SELECT unique_text_attach_v1('page', '{"name": "url", "text": ["url"], "index": "page_url"}');
--   SELECT unique_text_detach_v1('page', 'url');
--   SELECT * FROM unique_text_report_v1();       -- report.sql
--
-- Rows of equal scope and hash form a chain. A unique index covers scope, hash and number. The row with number 0 is the
-- anchor of its chain. Three rules hold at the end of each statement (maintainers/protocol.md shows why):
--   1. No two rows of a chain hold one text.
--   2. A chain that has rows has an anchor.
--   3. The anchor is flagged if its chain has other rows.
-- So an INSERT that sends the hash and number 0 needs no trigger: the check proves the hash, and the index decides.
--
-- attach and detach run as their caller. The trigger functions run as the owner of the table, because a role
-- that may only INSERT reads no chain. Every function finds only what pg_catalog has, and knows tables by their OID.
-- attach.sql makes and drops the functions and triggers that this part describes.

CREATE FUNCTION "unique_text_chain_code_v1"()
RETURNS pg_catalog.text LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $code$
-- The trigger function that keeps chains. All texts of an owner in a schema share it. It runs only for texts of equal
-- hash. It takes the table from the trigger that fires, and the declaration from the main trigger.
SELECT $chain$
#variable_conflict use_variable
DECLARE
  property CONSTANT jsonb := TG_ARGV[0]::jsonb->'name';
  declaration jsonb;
  fires boolean;
  is_whole boolean;
  index_name text;
  longest integer;
  texts integer;
  scopes integer;
  -- Rows of children by INHERITS are no rows of the table.
  own CONSTANT text := format('ONLY %s', TG_RELID::regclass);
  -- The columns by their present names: texts, scopes, hash, number, flag, delete date.
  columns text[];
  name text;
  number text;
  flag text;
  -- Conditions on the given row ($1), and on rows s and t of the table.
  t_in_chain text := 'true';
  s_in_chain text := 'true';
  t_has_text text := 'true';
  s_has_text_of_t text := 'true';
  t_is_live text := 'true';
  s_is_live text := 'true';
  given_is_live text := 'true';
  -- Conditions on the old row ($1) and the new row ($2) of an UPDATE.
  chain_stays text := 'true';
  text_stays text := 'true';
  new_is_live text := 'true';
  lowest integer;
  spot tid;
  highest integer;
  taken integer;
  length bigint;
  locked boolean := false;
  holds boolean;
  leaves boolean := false;
  comes boolean := false;
  given record;
BEGIN
  -- The main trigger has the declaration, and names the columns. pg_get_triggerdef uses no snapshot, and is NULL for a
  -- trigger that only an old snapshot shows. The queries below are parsed with the present names of columns, which
  -- pg_identify_object_as_address has at every isolation level.
  SELECT pg_get_triggerdef(fired.oid) IS NOT NULL, pg_get_triggerdef(main.oid) IS NOT NULL AND count(*) OVER () = 1,
      convert_from(substring(main.tgargs FROM 1 FOR octet_length(main.tgargs) - 1), 'UTF8'),
      ARRAY(SELECT a.object_names[3] FROM unnest(main.tgattr) WITH ORDINALITY AS k (attnum, position)
        CROSS JOIN pg_identify_object_as_address('pg_class'::regclass, TG_RELID, k.attnum) AS a ORDER BY k.position)
    INTO fires, is_whole, declaration, columns
    FROM pg_trigger AS fired LEFT JOIN pg_trigger AS main
      ON main.tgrelid = fired.tgrelid AND main.tgfoid = fired.tgfoid AND main.tgtype = 23
        AND position(convert_to(format('"kind": "text", "name": %s', property), 'UTF8') IN main.tgargs) > 0
    WHERE fired.tgrelid = TG_RELID AND fired.tgname = TG_NAME;
  index_name := coalesce(declaration->>'index', property->>0);
  IF fires IS NOT TRUE THEN
    -- The snapshot may hide new numbers, too.
    RAISE EXCEPTION USING ERRCODE = '40001', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the guard is newer than the snapshot of the transaction';
  ELSIF NOT is_whole OR NOT declaration ? 'bodies' THEN
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the guard has lost its trigger BEFORE INSERT OR UPDATE, or has two',
      HINT = 'Create the guard again, for instance by a new migration.';
  END IF;
  longest := coalesce(declaration->>'maxChainLength', '100');
  texts := jsonb_array_length(declaration->'text');
  scopes := jsonb_array_length(declaration->'scope');
  -- A trigger on the table of another role may be a trap: casts and triggers of that table would run as our owner. This
  -- reads the owner of the row type, because Citus hides shards from queries of pg_class.
  IF NOT EXISTS (SELECT FROM pg_type AS y WHERE y.oid = format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)::regtype
      AND pg_get_userbyid(y.typowner) = CURRENT_USER) THEN
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the guard does not belong to the owner of the table: a new migration creates it again',
      HINT = 'In SQL, unique_text_detach_v1 and then unique_text_attach_v1 create it again.';
  END IF;
  number := columns[texts + scopes + 2];
  flag := columns[texts + scopes + 3];
  FOREACH name IN ARRAY columns[texts + 1 : texts + scopes + 1] LOOP
    t_in_chain := concat(t_in_chain, format(' AND t.%1$I = ($1).%1$I', name));
    s_in_chain := concat(s_in_chain, format(' AND s.%1$I = ($1).%1$I', name));
    chain_stays := concat(chain_stays, format(' AND ($1).%1$I = ($2).%1$I', name));
  END LOOP;
  FOREACH name IN ARRAY columns[1 : texts] LOOP
    -- Bytewise, because a nondeterministic collation equates different texts.
    t_has_text := concat(t_has_text, format(
      ' AND (t.%1$I::text COLLATE "C" = ($1).%1$I::text OR t.%1$I IS NULL AND ($1).%1$I IS NULL)', name));
    s_has_text_of_t := concat(s_has_text_of_t, format(
      ' AND (s.%1$I::text COLLATE "C" = t.%1$I::text OR s.%1$I IS NULL AND t.%1$I IS NULL)', name));
    text_stays := concat(text_stays, format(
      ' AND (($1).%1$I::text COLLATE "C" = ($2).%1$I::text OR ($1).%1$I IS NULL AND ($2).%1$I IS NULL)', name));
  END LOOP;
  name := columns[texts + scopes + 4];
  IF name IS NOT NULL THEN
    -- A row that is deleted softly is in no chain.
    t_is_live := format('t.%I IS NULL', name);
    s_is_live := format('s.%I IS NULL', name);
    given_is_live := format('($1).%I IS NULL', name);
    new_is_live := format('($2).%I IS NULL', name);
  END IF;

  -- Place, BEFORE a row is written: find its number in a chain that is not empty.
  IF TG_WHEN = 'BEFORE' AND TG_OP = 'UPDATE' THEN
    -- An upsert that sets the text would do this to a row of another text that took its number meanwhile.
    EXECUTE format('SELECT %s AND %s', chain_stays, given_is_live) INTO holds USING OLD, NEW;
    IF holds THEN
      RAISE EXCEPTION USING ERRCODE = '40001', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
        MESSAGE = 'a text cannot become another one of equal hash in place',
        HINT = 'An upsert met the row of another text: try again. An UPDATE: store the text as a new row.';
    END IF;
    -- A row that goes to another partition is in its chain there. With -1 it meets the INSERT triggers of that one.
    EXECUTE format('SELECT NOT (%s) FROM (SELECT ($1).*) AS t',
      coalesce(pg_get_partition_constraintdef(TG_RELID), 'true')) INTO holds USING NEW;
    IF holds THEN
      RETURN NEW;
    END IF;
  END IF;
  IF TG_WHEN = 'BEFORE' THEN
    FOR round IN 1..16 LOOP
      -- Once without the lock and, unless that is enough, once more under it: a new query has a new snapshot, which
      -- shows all that earlier holders of the lock have committed, and nobody can add more. Otherwise two transactions
      -- could give one text two numbers.
      EXECUTE format('SELECT min(t.%1$I), max(t.%1$I), count(*), min(t.%1$I) FILTER (WHERE %2$s)
          FROM %3$s AS t WHERE %4$s AND %5$s', number, t_has_text, own, t_in_chain, t_is_live)
        INTO lowest, highest, length, taken USING NEW;
      IF locked AND taken IS NULL AND length >= longest THEN
        RAISE EXCEPTION USING
          ERRCODE = 'UT002', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
          MESSAGE = format('the chain is full: %s texts share one hash', longest);
      ELSIF locked THEN
        RETURN jsonb_populate_record(NEW, jsonb_build_object(number, coalesce(taken, highest + 1)));
      ELSIF highest IS NULL OR taken = 0 OR lowest > 0 THEN
        -- Empty, or taken at 0: the index decides, and knows no snapshots. Others but no anchor: this very statement
        -- took the anchor, and a lock would wait for ever. Settle compares what gets 0.
        RETURN jsonb_populate_record(NEW, jsonb_build_object(number, coalesce(taken, 0), flag, (lowest > 0) IS TRUE));
      END IF;
      -- The anchor is the mutex of the chain. At REPEATABLE READ this fails if it has changed since the snapshot.
      EXECUTE format('SELECT FROM %s AS t WHERE %s AND %s AND t.%I = 0 FOR NO KEY UPDATE',
        own, t_in_chain, t_is_live, number) USING NEW;
      GET DIAGNOSTICS length = ROW_COUNT;
      locked := length > 0;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = '40001', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'could not lock the anchor of a chain due to concurrent deletes';
  END IF;

  -- Settle, AFTER a row is written: did it leave a chain as the anchor, or come to one beside the anchor?
  IF TG_OP = 'INSERT' THEN
    EXECUTE format('SELECT %s', given_is_live) INTO comes USING NEW;
  ELSIF TG_OP = 'DELETE' THEN
    EXECUTE format('SELECT ($1).%I = 0 AND %s', number, given_is_live) INTO leaves USING OLD;
  ELSE
    EXECUTE format('SELECT o.anchor AND o.flag AND o.live AND (stays.chain IS NOT TRUE OR NOT n.live),
        n.live AND (n.later AND NOT stays.number
          OR (n.later OR n.flag) AND (stays.text IS NOT TRUE OR stays.chain IS NOT TRUE OR NOT o.live)
          OR o.flag AND NOT n.flag AND stays.chain AND o.live)
      FROM (SELECT %3$s, ($1).%1$I = 0, ($1).%2$I) AS o (live, anchor, flag),
        (SELECT %4$s, ($2).%1$I > 0, ($2).%2$I) AS n (live, later, flag),
        (SELECT %5$s, %6$s, ($1).%1$I = ($2).%1$I) AS stays (chain, text, number)',
      number, flag, given_is_live, new_is_live, chain_stays, text_stays) INTO leaves, comes USING OLD, NEW;
  END IF;
  FOR way IN 1..2 LOOP
    IF way = 1 THEN
      CONTINUE WHEN leaves IS NOT TRUE;
      given := OLD;
    ELSE
      CONTINUE WHEN comes IS NOT TRUE;
      given := NEW;
    END IF;
    EXECUTE format('SELECT t.%1$I, t.ctid FROM %2$s AS t WHERE %3$s AND %4$s ORDER BY t.%1$I LIMIT 1
      FOR NO KEY UPDATE', number, own, t_in_chain, t_is_live) INTO lowest, spot USING given;
    CONTINUE WHEN lowest IS NULL;
    -- Triggers of the user that fire by this UPDATE find the tables of this schema.
    PERFORM set_config('search_path', format('pg_catalog, %I, pg_temp', TG_TABLE_SCHEMA), true);
    IF lowest = 0 THEN
      -- A touch, also of a flagged anchor: its new version makes transactions with an older snapshot fail with 40001,
      -- in place of acting on that. A lock would leave no trace. An UPDATE of the number waits for foreign key checks.
      EXECUTE format('UPDATE %s AS t SET %I = true WHERE t.ctid = $1', own, flag) USING spot;
    ELSE
      -- A promotion: the lowest row becomes the anchor.
      EXECUTE format('UPDATE %s AS t SET %I = 0, %I = true WHERE t.ctid = $1', own, number, flag) USING spot;
    END IF;
    GET DIAGNOSTICS length = ROW_COUNT;
    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
    -- The row was locked and there: only a trigger of the table can have undone this.
    EXECUTE format('SELECT EXISTS (SELECT FROM %s AS t WHERE %s AND %s AND t.%I = 0 AND t.%I)',
      own, t_in_chain, t_is_live, number, flag) INTO holds USING given;
    IF length = 0 OR NOT holds THEN
      RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
        MESSAGE = 'a trigger of the table undoes what the guard does to a chain',
        HINT = 'The trigger must keep hash, hash number and flag as they are, and let their UPDATE pass.';
    END IF;
    -- What is promoted was proved when it came. Equal texts from a time without the guard must not keep each other from
    -- being deleted.
    CONTINUE WHEN way = 1 AND lowest > 0;
    -- This statement may have put a text at 0 past every proof, or a trigger may have changed a text after the proof.
    -- Compared by number: an old snapshot can show two rows at one number, of which one is gone.
    EXECUTE format('SELECT EXISTS (SELECT FROM %1$s AS s JOIN %1$s AS t ON %2$s AND %3$s AND t.%4$I <> s.%4$I AND %5$s
        WHERE %6$s AND %7$s AND s.%4$I = ANY (ARRAY[0, ($1).%4$I]))',
      own, t_in_chain, t_is_live, number, s_has_text_of_t, s_in_chain, s_is_live) INTO holds USING given;
    IF holds THEN
      RAISE EXCEPTION USING ERRCODE = '23505', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
        MESSAGE = format('duplicate key value violates unique constraint %I', index_name),
        HINT = 'The text, or another of its hash, is stored twice: run the doctor.';
    END IF;
  END LOOP;
  RETURN NULL;
END
$chain$
$code$;
COMMENT ON FUNCTION "unique_text_chain_code_v1"() IS
  'typeorm-unique-text: the code of the trigger function that keeps chains.';

CREATE FUNCTION "unique_text_code_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb, chain pg_catalog.text)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- PL/pgSQL reserves words that quote_ident leaves as they are otherwise, such as by and begin.
SET quote_all_identifiers = on AS $code$
-- Returns the functions and triggers of a text, for unique_text_create_v1, and for unique_text_number_rows_v1:
--   hashed        the hash of the row NEW as SQL
DECLARE
  home name;
  table_name name;
  declaration jsonb;
  property CONSTANT text := declared->>'name';
  types CONSTANT jsonb := '{"name": "string", "text": "array", "index": "string", "check": "string", "scope": "array",
    "hash": "string", "number": "string", "chained": "string", "prefixes": "array", "digest": "string",
    "hashed": "string", "normalizers": "array", "nullable": "boolean", "immutable": "boolean", "deleted": "string",
    "spread": "boolean", "maxChainLength": "number", "guard": "string", "kind": "string", "protocol": "number",
    "serves": "number", "on": "array", "triggers": "array", "bodies": "string"}';
  wrong text;
  guard text;
  hash text;
  number text;
  flag text;
  deleted text;
  texts text[];
  prefixes text[];
  scopes text[];
  columns text;
  hashed text;
  -- Conditions in the functions and triggers.
  one_text text;
  same_text text;
  same_scope text;
  no_text text;
  had_no_text text;
  taken_text text;
  in_chain text;
  parts text[];
BEGIN
  -- An option that is misspelled, or "true" as a string, would be ignored.
  SELECT e.key INTO wrong FROM jsonb_each(declared) AS e
    WHERE jsonb_typeof(e.value) IS DISTINCT FROM (types->>e.key) OR e.key = 'kind' AND e.value <> '"text"'
      OR e.key = 'text' AND e.value = '[]' OR e.key = 'maxChainLength'
        AND (e.value::text !~ '^[1-9][0-9]{0,9}$' OR e.value > '2147483647') LIMIT 1;
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the encoding of the database must be UTF8';
  ELSIF property IS NULL OR declared->>'index' IS NULL OR jsonb_typeof(declared->'text') IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a declaration has the keys name, text and index',
      HINT = 'For instance {"name": "url", "text": ["url"], "index": "page_url"}.';
  ELSIF declared->>'hashed' IS NULL AND coalesce(declared->>'digest', 'md5') NOT IN ('md5', 'sha256') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the digest "%s" is not known', declared->>'digest'),
      HINT = 'The key hashed has the SQL of another digest than md5 and sha256.';
  ELSIF wrong IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('a declaration has no such key or value: %s', wrong);
  END IF;
  -- The triggers lock the table like this. Locked first, it shows its owner, and what another attach has committed.
  EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', on_table);
  SELECT n.nspname, c.relname INTO home, table_name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = on_table;
  declaration := jsonb_build_object('kind', 'text', 'protocol', 1, 'scope', '[]'::jsonb, 'hash', property || 'Hash',
    'number', property || 'HashNumber', 'chained', property || 'HashChained') || declared;
  guard := coalesce(declared->>'guard', format('unique_text_%s__%s', table_name, property));
  IF octet_length(guard) > 49 THEN
    -- Names have 63 bytes, and the longest end of one has 14.
    guard := concat('unique_text_', md5(guard));
  END IF;
  hash := quote_ident(declaration->>'hash');
  number := quote_ident(declaration->>'number');
  flag := quote_ident(declaration->>'chained');
  deleted := quote_ident(declaration->>'deleted');
  texts := ARRAY(SELECT quote_ident(c) FROM jsonb_array_elements_text(declaration->'text') AS c);
  scopes := ARRAY(SELECT quote_ident(c) FROM jsonb_array_elements_text(declaration->'scope') AS c);
  -- The chain function reads the columns from a trigger, in this order.
  columns := array_to_string(texts || scopes || ARRAY[hash, number, flag, deleted], ', ');
  -- What is hashed: one column, or several with their prefixes, or each with the number of its bytes.
  prefixes := ARRAY(SELECT coalesce(declaration->'prefixes'->>(position - 1), '')
    FROM generate_subscripts(texts, 1) AS position);
  SELECT string_agg(format(CASE
      WHEN cardinality(texts) = 1 AND prefix = '' THEN 'NEW.%s::text'
      WHEN '' = ANY (prefixes[2:]) THEN 'coalesce(octet_length(NEW.%1$s::text)::text || '':'' || NEW.%1$s::text, ''-'')'
      ELSE 'coalesce(%2$L || NEW.%1$s::text, '''')' END, c, prefix), ' || ')
    INTO hashed FROM unnest(texts, prefixes) AS p (c, prefix);
  hashed := coalesce(declaration->>'hashed', format(CASE declaration->>'digest'
      WHEN 'sha256' THEN 'sha256(convert_to(%s, ''UTF8''))' ELSE 'md5(%s)::uuid' END, hashed));
  -- Bytewise, because a nondeterministic collation equates different texts.
  one_text := '%2$s.%1$s::text COLLATE "C" = NEW.%1$s::text';
  IF declaration->'nullable' = 'true' OR cardinality(texts) > 1 THEN
    one_text := format('(%s OR %%2$s.%%1$s IS NULL AND NEW.%%1$s IS NULL)', one_text);
  END IF;
  SELECT string_agg(format(one_text, c, 'OLD'), ' AND '), string_agg(format(one_text, c, 't'), ' AND '),
      string_agg(format('NEW.%s IS NULL', c), ' AND '), string_agg(format('OLD.%s IS NULL', c), ' AND ')
    INTO same_text, taken_text, no_text, had_no_text FROM unnest(texts) AS c;
  SELECT coalesce(string_agg(format('OLD.%1$s = NEW.%1$s', c), ' AND '), 'true'),
      concat(string_agg(format('t.%1$s = NEW.%1$s AND ', c), ''), format('t.%1$s = NEW.%1$s', hash))
    INTO same_scope, in_chain FROM unnest(scopes) AS c;

  -- The trigger function of this text. It makes the hash, and gives number 0 in an empty chain, which is
  -- enough for practically every row. Otherwise it sets -1, which the check refuses, and the chain function goes on.
  parts := ARRAY[format($part$
DECLARE
  -- False in a partition, in a shard and after a rename. The chain function finds every number there.
  plain CONSTANT boolean := TG_TABLE_SCHEMA = %L AND TG_TABLE_NAME = %L;
  taken boolean;
BEGIN
  IF plain THEN
  ELSIF NOT EXISTS (SELECT FROM pg_type AS y WHERE y.oid = format('%%I.%%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)::regtype
      AND pg_get_userbyid(y.typowner) = CURRENT_USER) THEN
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = %L, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the guard does not belong to the owner of the table: a new migration creates it again',
      HINT = 'In SQL, unique_text_detach_v1 and then unique_text_attach_v1 create it again.';
  END IF;$part$, home, table_name, declaration->>'index'), format($part$
  -- An unchanged text keeps its number, unless a promotion sets that to 0. No UPDATE clears the flag.
  IF TG_OP = 'UPDATE' AND %1$s AND %2$s%3$s THEN
    NEW.%4$s := OLD.%4$s;
    NEW.%5$s := CASE WHEN NEW.%5$s = 0 THEN 0 ELSE OLD.%5$s END;
    NEW.%6$s := OLD.%6$s OR NEW.%6$s IS TRUE;
    RETURN NEW;
  END IF;$part$, same_scope, same_text, ' AND (OLD.' || deleted || ' IS NULL OR NEW.' || deleted || ' IS NOT NULL)',
    hash, number, flag)];
  IF declaration->'immutable' = 'true' THEN
    parts := parts || format($part$
  IF TG_OP = 'UPDATE' AND NOT (%s) AND (%s AND %s) IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = 'UT001', CONSTRAINT = %L, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the text is immutable';
  END IF;$part$, had_no_text, same_scope, same_text, declaration->>'index');
  END IF;
  IF declaration->'nullable' = 'true' THEN
    parts := parts || format($part$
  IF %s THEN
    NEW.%s := NULL;
    NEW.%s := 0;
    NEW.%s := false;
    RETURN NEW;
  END IF;$part$, no_text, hash, number, flag);
  END IF;
  IF declaration->'spread' = 'true' THEN
    -- The hash has decided which partition or shard holds the row.
    parts := parts || format($part$
  IF (NEW.%1$s = %2$s) IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = %3$L, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the hash is not that of the text', HINT = %4$L;
  END IF;$part$, hash, hashed, declaration->>'check',
      format('The table is spread by %s: send it, made of the text as the check has it.', hash));
  ELSE
    parts := parts || format($part$
  NEW.%s := %s;$part$, hash, hashed);
  END IF;
  parts := parts || format($part$
  NEW.%s := -1;
  NEW.%s := false;$part$, number, flag);
  IF deleted IS NOT NULL THEN
    -- A row that is deleted softly is in no chain. When it is restored, it gets a number that is free then.
    parts := parts || format($part$
  IF NEW.%s IS NOT NULL THEN
    NEW.%s := 0;
    RETURN NEW;
  END IF;$part$, deleted, number);
  END IF;
  parts := parts || format($part$
  IF plain THEN
    -- Of a text that is at 0, the index raises the ordinary violation.
    SELECT t.%1$s = 0 AND %2$s INTO taken FROM ONLY %3$s AS t WHERE %4$s%5$s LIMIT 1;
    IF NOT FOUND OR taken AND TG_OP = 'INSERT' THEN
      NEW.%1$s := 0;
    END IF;
  END IF;
  RETURN NEW;
END
$part$, number, taken_text, on_table, in_chain, ' AND t.' || deleted || ' IS NULL');

  -- The conditions are short, because Postgres prepares them for every statement. Triggers fire in the order of names.
  -- Settle is AFTER, because a BEFORE trigger would make an UPDATE of several rows of a chain fail with 27000.
  -- settle_update names no columns, because a user's BEFORE trigger may change some that the statement does not name.
  RETURN jsonb_build_object('declaration', declaration, 'guard', guard, 'main', 23, 'hashed', hashed,
    'functions', jsonb_build_array(
      jsonb_build_object('name', guard, 'body', array_to_string(parts, '')),
      jsonb_build_object('name', 'unique_text_chain_v1', 'body', chain, 'shared', true)),
    'triggers', (SELECT jsonb_agg(v) FROM (VALUES
      (7, '_place_insert', 1, format('BEFORE INSERT ON %s FOR EACH ROW
        WHEN (NEW.%s IS NULL OR (NEW.%s = 0) IS NOT TRUE OR NEW.%s)', on_table, hash, number, flag)),
      (19, '_place_update', 1, format('BEFORE UPDATE OF %1$s ON %2$s FOR EACH ROW WHEN ((%3$s) IS NOT TRUE
        OR (%4$s) IS NOT TRUE OR (OLD.%5$s = NEW.%5$s) IS NOT TRUE OR (OLD.%6$s = NEW.%6$s) IS NOT TRUE
        OR OLD.%7$s AND NEW.%7$s IS NOT TRUE%8$s)', columns, on_table, same_text, same_scope, hash, number, flag,
        ' OR OLD.' || deleted || ' IS NOT NULL AND NEW.' || deleted || ' IS NULL')),
      (23, '_rest', 2, format('BEFORE INSERT OR UPDATE OF %s ON %s FOR EACH ROW
        WHEN (NEW.%s < 0)', columns, on_table, number)),
      (5, '_settle_insert', 2, format('AFTER INSERT ON %s FOR EACH ROW WHEN (NEW.%s > 0)', on_table, number)),
      (17, '_settle_update', 2, format('AFTER UPDATE ON %s FOR EACH ROW
        WHEN (OLD.%s OR NEW.%2$s OR NEW.%s > 0)', on_table, flag, number)),
      (9, '_settle_delete', 2, format('AFTER DELETE ON %s FOR EACH ROW WHEN (OLD.%s)', on_table, flag))
    ) AS v (type, suffix, runs, fires)));
END
$code$;
COMMENT ON FUNCTION "unique_text_code_v1"(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.text) IS
  'typeorm-unique-text: the functions and triggers that unique_text_attach_v1 makes.';

CREATE FUNCTION "unique_text_attach_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb)
RETURNS pg_catalog.void LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_clean_v1"(on_table, "unique_text_create_v1"(on_table,
  "unique_text_code_v1"(on_table, declared, "unique_text_chain_code_v1"())));
COMMENT ON FUNCTION "unique_text_attach_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: keeps a text of a table unique by triggers. unique_text_detach_v1 removes them.';

-- Columns, index and check remain. Returns whether there were any triggers.
CREATE FUNCTION "unique_text_detach_v1"(on_table pg_catalog.regclass, property pg_catalog.text)
RETURNS pg_catalog.bool LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_clean_v1"(on_table, "unique_text_drop_v1"(on_table, 'text'::pg_catalog.text, property));
COMMENT ON FUNCTION "unique_text_detach_v1"(pg_catalog.regclass, pg_catalog.text) IS
  'typeorm-unique-text: removes what unique_text_attach_v1 made for a text. Its columns, index and check remain.';
