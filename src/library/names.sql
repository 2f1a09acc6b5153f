-- typeorm-unique-text: unique names of rows of several tables, version 1.
--
--   SELECT unique_text_attach_name_v1('names', '{"names": []}');       -- once: who writes there by mistake is refused
--   SELECT unique_text_attach_name_v1('user', '{"names": [{"column": "handle", "namespace": "handle"}]}');
--   SELECT unique_text_detach_name_v1('user', 'names', 'names');
--
-- The table of names has a row for each name that a row of another table, its holder, has or had. Its text is a unique
-- text whose scope is the namespace (texts.sql). Three rules hold at the end of each statement
-- (maintainers/protocol-names.md shows why):
--   1. In one namespace, no text occurs twice in the table of names.
--   2. Each name in a column of a holder is there, in the state 'held', with the table, the column and the key of it.
--   3. Each name in the state 'held' has a holder that has it.
--
-- attach and detach run as their caller. All triggers of a table run one function, as the owner of the table, which
-- finds only what pg_catalog has. Names know their table by its OID.
-- attach.sql makes and drops the function and triggers that this part describes.

CREATE FUNCTION "unique_text_name_code_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- PL/pgSQL reserves words that quote_ident leaves as they are otherwise, such as by and begin.
SET quote_all_identifiers = on AS $code$
-- Returns the function and triggers of names, for unique_text_create_v1, and for unique_text_name_once_v1:
--   once   what the owner of the table runs after that
-- In the code, words in braces are replaced.
DECLARE
  -- The statements of the trigger function that read the table. A row t is read by key, because a trigger of the user
  -- may have changed it again. It is the newest one, because an old snapshot may show another one that is gone. The
  -- limit, and each OFFSET 0, keep a subquery from being a join, which would be planned while a table has no rows.
  rows CONSTANT text := 'new_rows AS r CROSS JOIN LATERAL (
          SELECT {columns} FROM {table} AS t WHERE {t_is_r} ORDER BY age(t.xmin) LIMIT 1) AS t {names_of_t}';
  held_by_t CONSTANT text := $sql$LEFT JOIN LATERAL (
          SELECT n.id, n.namespace, n.text_hash, n.text_hash_number, n.text COLLATE "C" FROM {names} AS n
            WHERE n.holder_key = {key_of_t} AND n.holder = {holder} AND n.holder_column = v.property
              AND n.state = 'held' ORDER BY age(n.xmin) LIMIT 1) AS h (id, namespace, hash, number, text) ON true$sql$;
  missing CONSTANT text := '(SELECT v.*, {key_of_t} AS key FROM {table} AS t {names_of_t} {held_by_t}
        WHERE v.text IS NOT NULL AND (h.text = v.text AND h.namespace = v.namespace) IS NOT TRUE) AS c';
  -- DO UPDATE locks the row that is in the way, even if its condition is false.
  on_conflict CONSTANT text := $sql$ON CONFLICT (namespace, text_hash, text_hash_number) DO UPDATE
        SET holder = EXCLUDED.holder, holder_column = EXCLUDED.holder_column, holder_key = EXCLUDED.holder_key,
          state = 'held', since = statement_timestamp(), until = NULL
        WHERE n.text COLLATE "C" = EXCLUDED.text AND n.state <> 'held' AND (n.until <= statement_timestamp()
          OR n.holder = EXCLUDED.holder AND n.holder_key = EXCLUDED.holder_key)$sql$;
  -- INSERT: all rows of the statement get their names.
  insert_all CONSTANT text := $sql$
    INSERT INTO {names} AS n ({name})
      SELECT DISTINCT ON (c.namespace, c.hash) c.namespace, c.text, c.hash, 0, {holder}, c.property, c.key, 'held'
        FROM (SELECT v.*, {key_of_t} AS key FROM {rows}
          WHERE v.text IS NOT NULL) AS c
        ORDER BY c.namespace, c.hash {on_conflict}$sql$;
  -- UPDATE: a name of the row NEW that differs from the one that it holds.
  difference CONSTANT text := $sql$
    SELECT v.*, {key_of_t} AS key, h.id AS former_id, h.hash AS former_hash, h.number AS former_number,
        {one_name} NOT EXISTS (SELECT FROM new_rows OFFSET 1) AS is_alone
      FROM (SELECT {columns} FROM {table} AS t WHERE {t_is_new} ORDER BY age(t.xmin) LIMIT 1) AS t
        {names_of_t} {held_by_t} WHERE h.text IS DISTINCT FROM v.text LIMIT 1$sql$;
  -- UPDATE: whether names are left at a key that no row has.
  left_behind CONSTANT text := $sql$
    SELECT EXISTS (SELECT FROM {names} AS n WHERE n.holder_key = {key_of_old} AND n.holder = {holder})
      AND NOT EXISTS (SELECT FROM {table} AS t WHERE {t_is_old})$sql$;
  -- UPDATE: names go along with keys, of all rows at once, because two rows may have exchanged theirs. Both transition
  -- tables have the rows in one order. A cascade may have changed a key twice.
  move CONSTANT text := $sql$
    WITH changed AS MATERIALIZED (
      SELECT c.* FROM ROWS FROM (unnest((SELECT array_agg({key_of_r}) FROM old_rows AS r)),
          unnest((SELECT array_agg({key_of_r}) FROM new_rows AS r))) AS c (former, key)
        WHERE c.former <> c.key
    ), gone_keys AS MATERIALIZED (
      SELECT c.*, c.key = ANY (SELECT o.former FROM changed AS o) AS goes_on,
          EXISTS (SELECT FROM {table} AS t WHERE {t_is_c} AND {key_of_t} = c.key OFFSET 0) AS is_there
        FROM changed AS c WHERE c.former = ANY (SELECT o.key FROM changed AS o)
          OR NOT EXISTS (SELECT FROM {table} AS t WHERE {t_was_c} AND {key_of_t} = c.former OFFSET 0)
    ), moves AS (
      SELECT c.former AS key, CASE WHEN c.is_there OR c.goes_on THEN c.key END AS next, NOT c.goes_on AS is_last
        FROM gone_keys AS c
      UNION ALL
      -- A row that gets the key of a deleted one inherits nothing.
      SELECT c.key, NULL, true FROM gone_keys AS c WHERE c.is_there AND NOT c.goes_on AND EXISTS (
        SELECT FROM {table} AS t {names_of_t} {held_by_t}
          WHERE {t_is_c} AND {key_of_t} = c.key AND h.text IS DISTINCT FROM v.text OFFSET 0)
    ), moved AS MATERIALIZED (
      SELECT n.id, CASE WHEN NOT (m.is_last AND n.state = 'held' AND EXISTS (
          -- A trigger has given the row another name before this.
          SELECT FROM {names} AS o WHERE o.holder_key = m.next AND o.holder = {holder}
            AND o.holder_column = n.holder_column AND o.state = 'held' OFFSET 0)) THEN m.next END AS next
        FROM moves AS m JOIN {names} AS n ON n.holder_key = m.key AND n.holder = {holder}
        ORDER BY n.namespace, n.text_hash FOR NO KEY UPDATE OF n
    ), gone AS (
      DELETE FROM {names} AS n USING moved AS m WHERE n.id = m.id AND m.next IS NULL
        AND m.id <> ALL (ARRAY(SELECT o.id FROM moved AS o WHERE o.next IS NOT NULL))
    )
    UPDATE {names} AS n SET holder_key = m.next FROM moved AS m WHERE n.id = m.id AND m.next IS NOT NULL$sql$;
  -- UPDATE: one pass locks what comes and what is given up, so that two bulk writes never wait for each other.
  change_all CONSTANT text := $sql$
    WITH changed AS MATERIALIZED (
      SELECT v.*, {key_of_t} AS key, h.id AS former_id, h.namespace AS former_namespace, h.hash AS former_hash,
          h.text AS former_text
        FROM {rows} {held_by_t} WHERE h.text IS DISTINCT FROM v.text
    ), passing AS (
      SELECT c.namespace, c.hash, c.text, c.property, c.key FROM changed AS c WHERE c.text IS NOT NULL
      UNION ALL
      SELECT c.former_namespace, c.former_hash, c.former_text, c.property, c.key
        FROM changed AS c WHERE c.former_id IS NOT NULL
    ), passed AS (
      INSERT INTO {names} AS n ({name})
        SELECT DISTINCT ON (c.namespace, c.hash) c.namespace, c.text, c.hash, 0, {holder}, c.property, c.key, 'held'
          FROM passing AS c ORDER BY c.namespace, c.hash {on_conflict} RETURNING 1
    )
    SELECT (SELECT count(c.text) FROM changed AS c), (SELECT count(*) FROM passed),
      (SELECT array_agg(c.former_id) FROM changed AS c WHERE c.former_id IS NOT NULL)$sql$;
  -- INSERT and UPDATE: the names that the rows do not hold yet. An old snapshot may show what a row that is gone held
  -- by this key. FOR KEY SHARE then fails with 40001.
  not_held CONSTANT text := $sql$
    SELECT v.*, {key_of_t} AS key FROM {rows}
      WHERE v.text IS NOT NULL AND NOT EXISTS (SELECT FROM {names} AS n WHERE n.holder_key = {key_of_t}
        AND n.holder = {holder} AND n.holder_column = v.property AND n.state = 'held' AND n.text COLLATE "C" = v.text
        FOR KEY SHARE)
      ORDER BY v.namespace, v.hash$sql$;
  -- INSERT and UPDATE: takes a former name, or one whose holder has it no more, because this very statement has changed
  -- that row. $4 is the id of the name, $5 the column and $6 the key.
  take_one CONSTANT text := $sql$
    UPDATE {names} AS n SET holder = {holder}, holder_column = $5, holder_key = $6, state = 'held',
        since = statement_timestamp(), until = NULL
      WHERE n.id = $4 AND (n.state <> 'held'
          AND (n.until <= statement_timestamp() OR n.holder = {holder} AND n.holder_key = $6)
        OR n.state = 'held' AND n.holder = {holder} AND NOT EXISTS (SELECT FROM {table} AS t {names_of_t}
          WHERE {t_is_n} AND v.property = n.holder_column AND v.text = n.text COLLATE "C" OFFSET 0))$sql$;
  -- DELETE: deletes the names of the rows, former ones too, in the order in which every statement locks names. A
  -- trigger of the user may have put a row back, and a row of a child by INHERITS may have its key. A former name that
  -- has ended may have another holder by the time it is locked.
  delete_all CONSTANT text := $sql$
    DELETE FROM {names} AS n WHERE n.id = ANY (ARRAY(SELECT locked.id FROM (
      SELECT n.* FROM old_rows AS r CROSS JOIN LATERAL (
          SELECT n.id, n.holder_key AS key, n.namespace, n.text_hash AS hash FROM {names} AS n
            WHERE n.holder_key = {key_of_r} AND n.holder = {holder} AND NOT EXISTS (
              SELECT FROM {table} AS t {names_of_t} WHERE {t_is_r} AND v.property = n.holder_column
                AND (n.state <> 'held' OR v.text = n.text COLLATE "C") OFFSET 0)
            OFFSET 0) AS n
        ORDER BY n.namespace, n.hash) AS gone
      CROSS JOIN LATERAL (SELECT n.id FROM {names} AS n
        WHERE n.id = gone.id AND n.holder = {holder} AND n.holder_key = gone.key FOR NO KEY UPDATE) AS locked))$sql$;
  -- Citus makes another table when it takes one or gives it back. By rule 2, the name of a row is recorded as held by
  -- this row. If the table in that record no longer exists, it was this one, and all of its names are ours.
  inherit CONSTANT text := $sql$
    WITH former AS (SELECT n.holder FROM {table} AS t {names_of_t} JOIN {names} AS n ON n.holder_key = {key_of_t}
        AND n.namespace = v.namespace AND n.text COLLATE "C" = v.text AND n.state = 'held' LIMIT 1)
    UPDATE {names} AS n SET holder = {holder} FROM former AS f WHERE n.holder = f.holder
      AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = f.holder)$sql$;

  -- The trigger function. Whose the table of names is, is asked at every call: its triggers run as our owner.
  follow CONSTANT text := $follow$
#variable_conflict use_variable
DECLARE
  -- The statements name the table. Once it was renamed, and in a shard, EXECUTE runs them with its present name.
  named CONSTANT boolean := TG_TABLE_SCHEMA = {schema} AND TG_TABLE_NAME = {relname};
  as_of CONSTANT bytea := convert_to(format('"as_of": %s', TG_ARGV[0]::jsonb->'as_of'), 'UTF8');
  own text;
  holder regclass := TG_RELID;
  wrong text;
  given bigint;
  done bigint;
  freed bigint[];
  taken bigint[];
  refused jsonb[];
  refusal jsonb;
  moves boolean := false;
  one record;
  found_id bigint;
BEGIN
  IF NOT named THEN
    own := format('ONLY %s', TG_RELID::regclass);
    -- The table of another role is a trap. Citus hides shards in pg_class, but not their row types.
    IF NOT EXISTS (SELECT FROM pg_type AS y WHERE y.oid = format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)::regtype
        AND pg_get_userbyid(y.typowner) = current_user) THEN
      holder := NULL;
    ELSIF to_regclass('pg_dist_shard') IS NOT NULL THEN
      SELECT CASE WHEN {local} AND p.partmethod = 'n' AND p.repmodel = 's' AND p.colocationid = 0
          THEN s.logicalrelid END INTO holder
        FROM pg_dist_shard AS s JOIN pg_dist_partition AS p ON p.logicalrelid = s.logicalrelid
        WHERE s.shardid = substring(TG_TABLE_NAME, '_([0-9]+)$')::numeric
          AND TG_TABLE_NAME = ANY (parse_ident(shard_name(s.logicalrelid, s.shardid)));
      holder := CASE WHEN FOUND THEN holder ELSE TG_RELID END;
    END IF;
  END IF;
  -- A trigger that never fires keeps the columns, in their order and with their present names. A snapshot that does not
  -- show the triggers as of the last attach does not show all names, either.
  SELECT CASE WHEN k.relkind <> 'r' OR NOT pg_has_role(k.relowner, current_user, 'MEMBER')
      THEN 'the owner of the table of names may not act as the owner of its holders'
      WHEN holder IS NULL THEN 'the triggers of names are on another table than their own'
      WHEN {columns_are} THEN '' ELSE 'the triggers of names name another column than their own' END
    INTO wrong FROM pg_class AS k CROSS JOIN pg_trigger AS kept WHERE k.oid = {names_oid}
      AND kept.tgrelid = TG_RELID AND kept.tgtype = 18 AND position(as_of IN kept.tgargs) > 0;
  IF wrong IS NULL THEN
    IF NOT EXISTS (SELECT FROM pg_trigger AS fired
        WHERE fired.tgrelid = TG_RELID AND fired.tgname = TG_NAME AND position(as_of IN fired.tgargs) > 0) THEN
      RAISE EXCEPTION USING ERRCODE = '40001', SCHEMA = TG_TABLE_SCHEMA, TABLE = {relname},
        MESSAGE = 'the triggers of names are newer than the snapshot of the transaction';
    END IF;
    wrong := 'the trigger that keeps the columns of names is missing';
  END IF;
  IF wrong <> '' THEN
    RAISE EXCEPTION USING ERRCODE = '55000', SCHEMA = TG_TABLE_SCHEMA, TABLE = {relname}, MESSAGE = wrong,
      HINT = 'Something was renamed or replaced: attach the names again, for instance by a new migration.';
  ELSIF {local} AND holder <> {oid} THEN
    own := coalesce(own, {table_text});
    EXECUTE {inherit*} USING holder;
  END IF;

  IF TG_OP = 'TRUNCATE' THEN
    -- It takes rows that an older snapshot does not show; their names would stay, and nobody could have them.
    IF NOT starts_with(current_setting('transaction_isolation'), 'read ') THEN
      RAISE EXCEPTION USING ERRCODE = '0A000', SCHEMA = TG_TABLE_SCHEMA, TABLE = {relname},
        MESSAGE = 'a table whose rows hold names can be truncated at READ COMMITTED only';
    END IF;
    DELETE FROM {names} AS n WHERE n.holder = holder;
    RETURN NULL;
  ELSIF TG_OP = 'DELETE' THEN
    IF named THEN{delete_all};
    ELSE
      EXECUTE {delete_all*} USING holder;
    END IF;
    RETURN NULL;
  ELSIF TG_OP = 'INSERT' THEN
    IF named THEN{insert_all};
    ELSE
      EXECUTE {insert_all*} USING holder;
    END IF;
    GET DIAGNOSTICS done = ROW_COUNT;
    SELECT {count} INTO given FROM new_rows AS r;
  ELSE
    -- The first row of an UPDATE does the work for all, and later rows find no difference.
    FOR look IN 1..2 LOOP
      IF named THEN{difference} INTO one;
      ELSE
        EXECUTE {difference*} INTO one USING holder, NEW;
      END IF;
      EXIT WHEN look = 2;
      moves := one.key IS NOT NULL AND NOT one.is_alone;
      IF {other_key} AND NOT moves THEN
        moves := one.key IS NOT NULL;
        IF NOT moves THEN
          own := coalesce(own, {table_text});
          EXECUTE {left_behind*} INTO moves USING holder, NEW, OLD;
        END IF;
      END IF;
      EXIT WHEN NOT moves;
      own := coalesce(own, {table_text});
      EXECUTE {move*} USING holder;
    END LOOP;
    IF one.key IS NULL THEN
      RETURN NULL;
    END IF;
    IF one.is_alone AND one.former_number = 0 AND one.text IS NOT NULL THEN
      -- One name for another: two small statements, in the order in which every statement locks names.
      freed := ARRAY[one.former_id];
      FOR step IN 1..2 LOOP
        IF (step = 1) = (one.hash < one.former_hash) THEN
          INSERT INTO {names} AS n ({name})
            VALUES (one.namespace, one.text, one.hash, 0, holder, one.property, one.key, 'held') {on_conflict};
          GET DIAGNOSTICS done = ROW_COUNT;
        ELSE{release_freed}
        END IF;
      END LOOP;
      IF done = 1 THEN
        RETURN NULL;
      END IF;
    END IF;
    IF named THEN{change_all} INTO given, done, freed;
    ELSE
      EXECUTE {change_all*} INTO given, done, freed USING holder;
    END IF;
  END IF;
  IF done < given THEN
    -- What the pass did not take, one by one: a name that is held, or of which another text of equal hash has number 0.
    own := coalesce(own, {table_text});
    FOR one IN EXECUTE {not_held*} USING holder LOOP
      FOR round IN 1..16 LOOP
        -- Locked, it stays as it is, and the next query sees what its holder has now.
        SELECT n.id INTO found_id FROM {names} AS n WHERE n.namespace = one.namespace AND n.text_hash = one.hash
          AND n.text COLLATE "C" = one.text FOR NO KEY UPDATE;
        IF found_id IS NULL THEN
          -- Another text of equal hash: the guard finds the number, or the index sees that others were faster.
          INSERT INTO {names} (namespace, text, holder, holder_column, holder_key, state)
            VALUES (one.namespace, one.text, holder, one.property, one.key, 'held') ON CONFLICT DO NOTHING;
          EXIT WHEN FOUND;
          IF round = 16 THEN
            RAISE EXCEPTION USING ERRCODE = '40001', SCHEMA = TG_TABLE_SCHEMA, TABLE = {relname},
              MESSAGE = 'could not take a name due to concurrent changes, or a trigger on the table of names';
          END IF;
          CONTINUE;
        END IF;
        EXECUTE {take_one*} USING holder, NEW, OLD, found_id, one.property, one.key;
        GET DIAGNOSTICS done = ROW_COUNT;
        IF done = 1 THEN
          taken := taken || found_id;
        ELSE
          -- The key of a holder is shown to a role that may read the table of names. A dot in a name is escaped.
          SELECT jsonb_build_object('column', one.property, 'of', one.key, 'holder', (
                SELECT concat(CASE WHEN h.relnamespace <> c.relnamespace
                    THEN replace(replace(s.nspname, ':', '::'), '.', ':.') || '.' END,
                    replace(replace(h.relname, ':', '::'), '.', ':.'))
                  FROM pg_class AS h JOIN pg_namespace AS s ON s.oid = h.relnamespace WHERE h.oid = n.holder),
              'holderColumn', n.holder_column, 'state', n.state, 'key', CASE WHEN NOT c.relrowsecurity
                AND has_table_privilege(r.oid, c.oid, 'SELECT') THEN n.holder_key END)
            INTO refusal FROM {names} AS n JOIN pg_class AS c ON c.oid = n.tableoid JOIN pg_roles AS r
              ON r.rolname = coalesce(nullif(current_setting('role'), 'none'), SESSION_USER)
            WHERE n.id = found_id;
          refused := refused || refusal;
        END IF;
        EXIT;
      END LOOP;
      EXIT WHEN cardinality(refused) = 10;
    END LOOP;
    IF refused IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '23505', SCHEMA = TG_TABLE_SCHEMA, TABLE = {relname}, CONSTRAINT = {index},
        MESSAGE = format('duplicate key value violates unique constraint "%s"', {index}), DETAIL = to_json(refused);
    END IF;
    freed := ARRAY(SELECT unnest(freed) EXCEPT SELECT unnest(taken));
  END IF;
  IF freed IS NOT NULL THEN{release_freed}
  END IF;
  RETURN NULL;
END
$follow$;

  -- Once, when names are attached: each row of the table gets the names that it has, and names that no row has go.
  claim CONSTANT text := $claim$
#variable_conflict use_variable
DECLARE
  holder CONSTANT regclass := {holder_text};
  clashes text[];
BEGIN{inherit};
  -- The names of tables that were dropped are free. With Citus, they may be those of a table that has yet to inherit.
  DELETE FROM {names} AS n WHERE n.holder <> 0 AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = n.holder)
    AND to_regclass('pg_dist_shard') IS NULL;
  UPDATE {names} AS n SET holder_column = m.now FROM unnest({former_columns}, {present_columns}) AS m (was, now)
    WHERE n.holder = holder AND n.holder_column = m.was AND m.was <> m.now;
  -- A key of another type: 1 becomes "1" if it is a bigint now.
  UPDATE {names} AS n SET holder_key = k.key FROM (SELECT {key_of_t} AS key FROM {table} AS t) AS k
    WHERE n.holder = holder AND n.holder_key <> k.key
      AND translate(n.holder_key::text, '"', '') = translate(k.key::text, '"', '');
  DELETE FROM {names} AS n WHERE n.holder = holder
    AND NOT EXISTS (SELECT FROM {table} AS t WHERE {key_of_t} = n.holder_key);
  -- Names of a column with another namespace move to it, former ones too. What has ended is free.
  DELETE FROM {names} AS n WHERE n.until <= statement_timestamp() AND n.state <> 'held';
  -- First they all leave, because two columns may exchange their namespaces.
  UPDATE {names} AS n SET namespace = concat(v.namespace, chr(10), n.namespace) FROM {declared_names}
    WHERE n.holder = holder AND n.holder_column = v.property AND n.namespace <> v.namespace;
  UPDATE {names} AS n SET namespace = v.namespace FROM {declared_names}
    WHERE n.holder = holder AND n.holder_column = v.property AND n.namespace <> v.namespace AND NOT EXISTS (
      SELECT FROM {names} AS o WHERE o.namespace = v.namespace AND o.text_hash = n.text_hash
        AND o.text COLLATE "C" = n.text OFFSET 0);
  clashes := ARRAY(SELECT format('%s.%s %s and %s.%s %s', n.holder, n.holder_column, n.holder_key, o.holder,
      o.holder_column, o.holder_key)
    FROM {names} AS n JOIN {declared_names} ON n.holder_column = v.property AND n.namespace <> v.namespace
      JOIN {names} AS o ON o.namespace = v.namespace AND o.text_hash = n.text_hash AND o.text COLLATE "C" = n.text
    WHERE n.holder = holder AND n.state <> 'held' AND (o.holder <> n.holder OR o.holder_key <> n.holder_key));
  DELETE FROM {names} AS n WHERE n.holder = holder AND NOT EXISTS (SELECT FROM {table} AS t {names_of_t}
    WHERE {t_is_n} AND v.property = n.holder_column AND v.namespace = n.namespace
      AND (n.state <> 'held' OR v.text = n.text COLLATE "C") OFFSET 0);
  INSERT INTO {names} AS n ({name})
    SELECT DISTINCT ON (c.namespace, c.hash) c.namespace, c.text, c.hash, 0, holder, c.property, c.key, 'held'
      FROM {missing} ORDER BY c.namespace, c.hash {on_conflict};
  -- Texts of equal hash: the guard finds their numbers.
  INSERT INTO {names} (namespace, text, holder, holder_column, holder_key, state)
    SELECT c.namespace, c.text, holder, c.property, c.key, 'held' FROM {missing}
      WHERE NOT EXISTS (SELECT FROM {names} AS n WHERE n.namespace = c.namespace AND n.text_hash = c.hash
        AND n.text COLLATE "C" = c.text)
      ORDER BY c.namespace, c.hash ON CONFLICT DO NOTHING;
  clashes := clashes || ARRAY(SELECT format('%s.%s %s and %s.%s %s', holder, c.property, c.key, n.holder,
      n.holder_column, n.holder_key)
    FROM {missing} JOIN {names} AS n ON n.namespace = c.namespace AND n.text_hash = c.hash
      AND n.text COLLATE "C" = c.text);
  IF cardinality(clashes) > 0 THEN
    RAISE EXCEPTION USING ERRCODE = '23505', TABLE = {relname}, CONSTRAINT = {index}, MESSAGE = format(
        'rows hold, or have held, one name: %s. The DETAIL has the keys of ten.', cardinality(clashes)),
      DETAIL = array_to_string(clashes[1:10], ', '),
      HINT = 'Rename one of each, or delete the former name, then run this again.';
  END IF;
  RETURN NULL;
END
$claim$;

  -- Before a direct write of the table of names, for each row: only a trigger may write a held name. It protects from
  -- mistakes. A role that must not write there gets no privilege, because the functions run as owners of holders.
  refuse CONSTANT text := $refuse$
BEGIN
  -- The types of the table of another role are a trap.
  IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = TG_RELID AND pg_get_userbyid(c.relowner) = current_user) THEN
    RAISE EXCEPTION USING ERRCODE = '55000', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the triggers of names are on another table than their own',
      HINT = 'Attach the names again, for instance by a new migration.';
  ELSIF TG_OP = 'DELETE' AND OLD.state <> 'held' THEN
    RETURN OLD;
  ELSIF (TG_OP = 'INSERT' OR TG_OP = 'UPDATE' AND OLD.state <> 'held') AND NEW.state IN ('reserved', 'redirect') THEN
    RETURN NEW;
  ELSIF TG_OP = 'UPDATE' AND record_image_eq(
      ROW(OLD.namespace, OLD.text, OLD.holder, OLD.holder_column, OLD.holder_key, OLD.state),
      ROW(NEW.namespace, NEW.text, NEW.holder, NEW.holder_column, NEW.holder_key, NEW.state)) THEN
    RETURN NEW;
  ELSIF TG_OP = 'TRUNCATE' AND NOT EXISTS (
      -- The tables of holders are empty too, perhaps by the same statement. To read a size needs no privilege.
      SELECT FROM pg_trigger AS g JOIN pg_class AS c ON c.oid = g.tgrelid
        WHERE c.oid <> TG_RELID AND has_table_privilege(c.relowner, TG_RELID, 'INSERT') AND pg_relation_size(c.oid) > 0
        AND strpos(encode(g.tgargs, 'escape'), encode(convert_to(format('"kept": %s, ',
          TG_ARGV[0]::jsonb->'kept'), 'UTF8'), 'escape')) > 0) THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'UT003', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
    MESSAGE = 'a name that is held cannot be written directly, and a former one is "reserved" or "redirect"',
    HINT = 'Change or delete the row that holds it: the name follows in the same statement.';
END
$refuse$;
  protects CONSTANT boolean := coalesce(declared->'names' = '[]', false);
  local CONSTANT boolean := coalesce(declared->>'citus' = 'local', false);
  t pg_class;
  -- Rows of a temporary table hold no names: the doctor looks at its triggers.
  is_trial boolean;
  home name;
  kept_in regclass;
  kept_owner oid;
  key_columns text[];
  -- Of each column of the key, unless it is none of those that have one JSON text in every session.
  key_types text[];
  columns text[];
  key text;
  same_key text;
  named_key text;
  other_key text;
  other_names text;
  parts jsonb;
  -- What EXECUTE has in place of the variables.
  by_execute jsonb;
  base text;
  former_columns text[];
  present_columns text[];
  one record;
BEGIN
  -- The triggers lock the table like this. Locked first, it shows its owner, and what another attach has committed.
  EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', on_table);
  SELECT c.* INTO t FROM pg_class AS c WHERE c.oid = on_table;
  SELECT n.nspname INTO home FROM pg_namespace AS n WHERE n.oid = t.relnamespace;
  is_trial := t.relpersistence = 't';
  base := coalesce(declared->>'in', CASE WHEN protects THEN quote_ident(t.relname) ELSE 'names' END);
  kept_in := to_regclass(concat(CASE cardinality(parse_ident(base)) WHEN 1 THEN format('%I.', home) END, base));
  SELECT c.relowner INTO kept_owner FROM pg_class AS c WHERE c.oid = kept_in AND c.relkind = 'r';
  IF NOT is_trial AND NOT pg_has_role(kept_owner, t.relowner, 'MEMBER') THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('the owner of %s may not act as the owner of %s', kept_in, on_table),
      HINT = 'See who made it and what it holds; then drop it, or give it to the owner of the other table.';
  ELSIF t.relkind <> 'r' OR kept_owner IS NULL OR NOT EXISTS (SELECT FROM pg_attribute AS a
      WHERE a.attrelid = kept_in AND a.attname = 'holder_key') THEN
    RAISE EXCEPTION USING ERRCODE = '42809',
      MESSAGE = format('%s is no ordinary table, or the table of names %s is none', on_table, base);
  ELSIF declared - '{names,in,key,hashed,citus,guard,was,kind,name,protocol,serves,on,triggers,bodies,as_of,kept,
      columns}'::text[] <> '{}' OR (SELECT bool_and((n->>'column' <> '' AND n->>'namespace' <> ''
        AND n - '{column,namespace,former,for,normalizer}'::text[] = '{}'
        AND coalesce(n->>'former', 'free') IN ('free', 'reserved', 'redirect')
        AND coalesce(n->>'for', '0')::interval >= '0') IS TRUE)
      FROM jsonb_array_elements(declared->'names') AS n) IS NOT TRUE AND NOT protects THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = 'a declaration has names, each with a column and a namespace, and no unknown key',
      HINT = '{"names": [{"column": "handle", "namespace": "handle", "former": "redirect", "for": "1 year"}]}';
  ELSIF EXISTS (SELECT FROM jsonb_array_elements(declared->'names') AS n JOIN pg_attribute AS a
      ON a.attrelid = on_table AND a.attname = n->>'column' JOIN pg_type AS y ON y.oid = a.atttypid
      WHERE y.typcategory <> 'S') THEN
    -- Of another type, the text may be that of the session, and a cast that of another role.
    RAISE EXCEPTION USING ERRCODE = '42804', MESSAGE = format('a name of %s is no text', on_table);
  END IF;
  base := coalesce(declared->>'guard', format('unique_name_%s', t.relname));
  IF octet_length(base) > 50 THEN
    base := concat('unique_name_', md5(base));
  END IF;

  IF NOT protects THEN
    -- The columns of the former declaration, and what they are called now. With was, a migration has detached it.
    SELECT ARRAY(SELECT jsonb_array_elements_text(f.declaration->'columns')), ARRAY(
        SELECT a.attname FROM unnest(kept.tgattr) WITH ORDINALITY AS c (attnum, position)
          JOIN pg_attribute AS a ON a.attrelid = on_table AND a.attnum = c.attnum ORDER BY c.position)
      INTO former_columns, present_columns FROM pg_trigger AS kept JOIN pg_trigger AS main USING (tgrelid, tgfoid)
        CROSS JOIN CAST(convert_from(substring(main.tgargs FROM 1 FOR octet_length(main.tgargs) - 1), 'UTF8') AS jsonb)
          AS f (declaration)
      WHERE tgrelid = on_table AND kept.tgtype = 18 AND main.tgtype = 32
        AND position('"kind": "name", "name": "names"' IN main.tgargs) > 0;
    IF NOT FOUND THEN
      SELECT array_agg(w.value), array_agg(w.key) INTO former_columns, present_columns
        FROM jsonb_each_text(declared->'was') AS w;
    END IF;
    SELECT array_agg(a.attname ORDER BY c.position), array_agg(CASE WHEN y.typnamespace = 'pg_catalog'::regnamespace
          AND y.typname IN ('int2', 'int4', 'int8', 'numeric', 'uuid', 'bool', 'text', 'bpchar', 'varchar', 'date',
            'timestamp', 'timestamptz', 'inet', 'cidr', 'macaddr') THEN y.typname ELSE '' END ORDER BY c.position)
      INTO key_columns, key_types FROM pg_attribute AS a JOIN pg_type AS y ON y.oid = a.atttypid
        LEFT JOIN pg_index AS i ON i.indrelid = on_table AND i.indisprimary
          AND a.attnum = ANY ((i.indkey::smallint[])[:i.indnkeyatts - 1])
        CROSS JOIN coalesce(array_position(ARRAY(SELECT jsonb_array_elements_text(declared->'key')), a.attname::text),
          array_position(i.indkey::smallint[], a.attnum)) AS c (position)
      WHERE a.attrelid = on_table AND (i.indrelid = on_table OR is_trial AND declared->'key' ? a.attname::text)
      -- A domain has the output function of its base type.
      HAVING bool_and(y.oid = ANY ('{date,timestamp,timestamptz}'::regtype[])
        OR y.typoutput <> ALL ('{float4out,float8out,cash_out,interval_out,byteaout,date_out,timestamp_out,
          timestamptz_out,array_out,range_out,multirange_out,record_out}'::regproc[]));
    IF NOT FOUND THEN
      RAISE EXCEPTION USING ERRCODE = '0A000',
        MESSAGE = format('%s has no primary key whose text is the same in every session', on_table);
    END IF;
    columns := key_columns || ARRAY(SELECT n->>'column' FROM jsonb_array_elements(declared->'names') AS n
      WHERE n->>'column' <> ALL (key_columns));
    -- A key is stored as JSON, which JavaScript reads exactly. Of other types, only the output function is called.
    SELECT format('jsonb_build_array(%s)', string_agg(format(CASE WHEN type = 'timestamptz' THEN 'timezone(''UTC'', %s)'
          WHEN type IN ('int8', 'numeric') THEN '%s::text' WHEN type = '' THEN 'concat(%s)' ELSE '%s' END, a), ', ')),
        string_agg(format(CASE type WHEN '' THEN 'concat(%s) = concat(%s)' ELSE '%s = %s' END, b, a), ' AND '),
        string_agg(format(CASE type WHEN 'timestamptz' THEN '%s = timezone(''UTC'', (%%1$s->>%s)::timestamp)'
          WHEN '' THEN 'concat(%s) = %%1$s->>%s' ELSE '%s = (%%1$s->>%s)::%s' END, b, position - 1, type), ' AND '),
        format(string_agg(format(CASE WHEN type IN ('text', 'bpchar', 'varchar', 'numeric')
          THEN '(%s::text COLLATE "C" = %s::text) IS NOT TRUE' WHEN type = '' THEN 'concat(%s) <> concat(%s)'
          ELSE '(%s = %s) IS NOT TRUE' END, a, '%2$s.' || c), ' OR '), 'OLD', 'NEW')
      INTO key, same_key, named_key, other_key
      FROM (SELECT type, position, c, '%1$s.' || c AS a, 't.' || c AS b FROM unnest(key_columns, key_types)
        WITH ORDINALITY AS u (name, type, position), replace(quote_ident(name), '%', '%%') AS c) AS u;

    SELECT jsonb_build_object('names', kept_in::text, 'names_oid', format('%L::regclass', kept_in),
        'name', 'namespace, text, text_hash, text_hash_number, holder, holder_column, holder_key, state',
        'table', format('ONLY %s', on_table), 'table_text', quote_literal(format('ONLY %s', on_table)),
        'holder_text', format('%L::regclass', on_table), 'schema', quote_literal(home),
        'relname', quote_literal(t.relname), 'oid', on_table::oid::text, 'local', local::text,
        'holder', 'holder', 'other_key', other_key,
        'columns', (SELECT string_agg('t.' || quote_ident(c), ', ') FROM unnest(columns) AS c),
        'columns_are', (SELECT string_agg(format(
            '(pg_identify_object_as_address(''pg_class''::regclass, TG_RELID, kept.tgattr[%s])).object_names[3] = %L',
            position - 1, c), ' AND ') FROM unnest(columns) WITH ORDINALITY AS u (c, position)),
        'key_of_t', format(key, 't'), 'key_of_r', format(key, 'r'), 'key_of_old', format(key, 'OLD'),
        't_is_r', format(same_key, 'r'), 't_is_new', format(same_key, 'NEW'), 't_is_old', format(same_key, 'OLD'),
        't_is_n', format(named_key, 'n.holder_key'), 't_is_c', format(named_key, 'c.key'),
        't_was_c', format(named_key, 'c.former'),
        'names_of_t', format('CROSS JOIN LATERAL (SELECT n.*, %s AS hash FROM (VALUES %s)
            AS n (namespace, property, text)) AS v', coalesce(declared->>'hashed', CASE (SELECT a.atttypid
            FROM pg_attribute AS a WHERE a.attrelid = kept_in AND a.attname = 'text_hash') WHEN 'uuid'::regtype
            THEN 'md5(n.text)::uuid' ELSE 'sha256(convert_to(n.text, ''UTF8''))' END),
          string_agg(format('(%1$L, %2$L, t.%2$I::text COLLATE "C")', n->>'namespace', n->>'column'), ', ')),
        'one_name', CASE WHEN count(*) > 1 THEN 'count(*) OVER () = 1 AND' ELSE '' END,
        'count', string_agg(format('count(r.%I)', n->>'column'), ' + '),
        'declared_names', format('(VALUES %s) AS v (namespace, property)',
          string_agg(format('(%L, %L)', n->>'namespace', n->>'column'), ', ')),
        'former_columns', format('%L::text[]', coalesce(former_columns, '{}')),
        'present_columns', format('%L::text[]', coalesce(present_columns, '{}')),
        'index', (SELECT quote_literal(c.relname) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
          WHERE i.indrelid = kept_in AND i.indisunique AND i.indisvalid AND 'text_hash' = ANY (ARRAY(
            SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = kept_in AND a.attnum = ANY (i.indkey)))),
        -- What happens to a name that is given up: a statement for each policy. By a subquery, the length of the array
        -- is unknown to the planner. Otherwise Postgres would make a plan each time.
        'release_freed', (SELECT string_agg(format(CASE p.state WHEN 'free' THEN '
          DELETE FROM %1$s AS n WHERE n.id = ANY ((SELECT freed)::bigint[]) AND n.holder_column = ANY (%2$L);' ELSE '
          UPDATE %1$s AS n SET state = %3$L, since = statement_timestamp(),
            until = statement_timestamp() + %4$L::interval
            WHERE n.id = ANY ((SELECT freed)::bigint[]) AND n.holder_column = ANY (%2$L);' END,
            kept_in, p.columns, p.state, p.time), '')
          FROM (SELECT coalesce(p->>'former', 'free') AS state, p->>'for' AS time, array_agg(p->>'column') AS columns
            FROM jsonb_array_elements(declared->'names') AS p GROUP BY 1, 2 ORDER BY 1, 2) AS p))
      INTO parts FROM jsonb_array_elements(declared->'names') AS n;
    by_execute := jsonb_build_object('holder', '$1', 't_is_new', format(same_key, '($2)'), 't_is_old',
      format(same_key, '($3)'), 'key_of_old', format(key, '($3)'));
    SELECT string_agg(format('(OLD.%1$I::text COLLATE "C" = NEW.%1$I::text OR OLD.%1$I IS NULL AND NEW.%1$I IS NULL)
      IS NOT TRUE', n->>'column'), ' OR ') INTO other_names FROM jsonb_array_elements(declared->'names') AS n;
    -- Each statement in two forms: as it is, and as an argument of EXECUTE.
    FOR one IN SELECT * FROM (VALUES (1, 'insert_all', insert_all), (2, 'difference', difference),
        (3, 'left_behind', left_behind), (4, 'move', move), (5, 'change_all', change_all), (6, 'not_held', not_held),
        (7, 'take_one', take_one), (8, 'delete_all', delete_all), (9, 'inherit', inherit), (10, 'follow', follow),
        (11, 'claim', claim)) AS s (nth, name, source) ORDER BY nth
    LOOP
      -- A migration may be printed with other spaces.
      one.source := regexp_replace(one.source, '[{][[:space:]]+', '{', 'g');
      one.source := regexp_replace(one.source, '[[:space:]]+[}]', '}', 'g');
      one.source := replace(replace(one.source, '{rows}', rows), '{missing}', missing);
      one.source := replace(replace(one.source, '{held_by_t}', held_by_t), '{on_conflict}', on_conflict);
      -- Every second piece is a word.
      SELECT parts || jsonb_build_object(
          one.name, string_agg(CASE WHEN is_word THEN parts->>word ELSE piece END, '' ORDER BY nth),
          one.name || '*', format('concat(%s)', string_agg(CASE WHEN is_word AND word = 'table' THEN 'own'
            WHEN is_word THEN quote_literal(coalesce(by_execute->>word, parts->>word))
            ELSE quote_literal(piece) END, ', ' ORDER BY nth)))
        INTO parts FROM regexp_split_to_table(one.source, '[{}]') WITH ORDINALITY AS p (piece, nth),
          regexp_replace(piece, '[[:space:]]', '', 'g') AS word, CAST(nth % 2 = 0 AS boolean) AS is_word;
    END LOOP;
  END IF;

  -- The trigger of TRUNCATE has the declaration. AFTER triggers, so that BEFORE triggers of the user have run.
  RETURN jsonb_build_object(
    'declaration', (declared - 'was') || jsonb_build_object('kind', 'name', 'protocol', 1,
      'name', CASE WHEN protects THEN 'direct' ELSE 'names' END, 'as_of', pg_current_xact_id()::text,
      'in', (SELECT CASE k.relnamespace WHEN t.relnamespace THEN quote_ident(k.relname) ELSE kept_in::text END
        FROM pg_class AS k WHERE k.oid = kept_in),
      'kept', kept_in::text, 'key', coalesce(key_columns, '{}'), 'columns', coalesce(columns, '{}')),
    'guard', base, 'main', 32, 'functions', jsonb_build_array(jsonb_build_object(
      'name', base, 'body', CASE WHEN protects THEN refuse ELSE parts->>'follow' END)),
    'triggers', (SELECT jsonb_agg(v) FROM (VALUES
      (protects, 31, '_write', 1, format('BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
        WHEN (pg_trigger_depth() = 0)', on_table)),
      (true, 32, '_truncate', 1, format('AFTER TRUNCATE ON %s FOR EACH STATEMENT', on_table)),
      (NOT protects, 4, '_insert', 1, format('AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows
        FOR EACH STATEMENT', on_table)),
      (NOT protects, 17, '_update', 1, format('AFTER UPDATE ON %s REFERENCING OLD TABLE AS old_rows
        NEW TABLE AS new_rows FOR EACH ROW WHEN (%s OR %s)', on_table, other_names, other_key)),
      (NOT protects, 8, '_delete', 1, format('AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows
        FOR EACH STATEMENT', on_table)),
      (NOT protects, 18, '_columns', 1, format('BEFORE UPDATE OF %s ON %s FOR EACH STATEMENT WHEN (false)', (
        SELECT string_agg(quote_ident(c), ', ') FROM unnest(columns) AS c), on_table))
    ) AS v (wanted, type, suffix, runs, fires) WHERE v.wanted),
    'once', CASE WHEN NOT is_trial THEN parts->>'claim' END);
END
$code$;
COMMENT ON FUNCTION "unique_text_name_code_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: the function and triggers that unique_text_attach_name_v1 makes.';

CREATE FUNCTION "unique_text_name_once_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $once$
-- Runs once of the plan as the owner of the table, because the table of names has triggers, and in a trigger, because
-- only a trigger may write held names. Nobody else can rename the schema of temporary tables, or create anything there.
BEGIN
  IF plan->>'once' IS NOT NULL THEN
    IF NOT starts_with(current_setting('transaction_isolation'), 'read ') AND pg_relation_size(on_table) > 0 THEN
      RAISE EXCEPTION USING ERRCODE = '0A000', HINT = 'SET default_transaction_isolation = ''read committed'';',
        MESSAGE = 'names of existing rows can be written at READ COMMITTED only: an older snapshot shows not all rows';
    END IF;
    EXECUTE format('CREATE FUNCTION pg_temp.unique_name_once() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
      SET search_path = pg_catalog, pg_temp SET row_security = off AS %L', plan->>'once');
    EXECUTE format('ALTER FUNCTION pg_temp.unique_name_once() OWNER TO %s', (
      SELECT c.relowner::regrole FROM pg_class AS c WHERE c.oid = on_table));
    CREATE TEMPORARY TABLE unique_name_once ();
    CREATE TRIGGER once AFTER DELETE ON pg_temp.unique_name_once EXECUTE FUNCTION pg_temp.unique_name_once();
    -- With session_replication_role = replica, too.
    ALTER TABLE pg_temp.unique_name_once ENABLE ALWAYS TRIGGER once;
    DELETE FROM pg_temp.unique_name_once;
    DROP TABLE pg_temp.unique_name_once;
    DROP FUNCTION pg_temp.unique_name_once();
  END IF;
  RETURN plan;
END
$once$;
COMMENT ON FUNCTION "unique_text_name_once_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: writes names as the owner of a table of holders.';

CREATE FUNCTION "unique_text_attach_name_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb)
RETURNS pg_catalog.void LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_clean_v1"(on_table, "unique_text_name_once_v1"(on_table,
  "unique_text_create_v1"(on_table, "unique_text_name_code_v1"(on_table, declared))));
COMMENT ON FUNCTION "unique_text_attach_name_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: makes rows of a table hold names by triggers. unique_text_detach_name_v1 removes them.';

CREATE FUNCTION "unique_text_name_release_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb,
  released_from pg_catalog.regclass)
RETURNS pg_catalog.jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $release$
-- Adds to the plan that the names of the rows are deleted, unless the table of names belongs to another role.
SELECT plan || jsonb_build_object('once', (SELECT format('BEGIN DELETE FROM %s AS n WHERE n.holder = %L::regclass;
    RETURN NULL; END', released_from, on_table)
  FROM pg_class AS k JOIN pg_class AS t ON t.oid = on_table
  WHERE k.oid = released_from AND k.relkind = 'r' AND pg_has_role(k.relowner, t.relowner, 'MEMBER')))
$release$;
COMMENT ON FUNCTION "unique_text_name_release_v1"(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.regclass) IS
  'typeorm-unique-text: how the names of a table are deleted.';

-- Names of the table remain for another attach, but are deleted from the table that is given in addition. The property
-- is 'names', or 'direct' for the table of names. Returns whether there were any triggers.
CREATE FUNCTION "unique_text_detach_name_v1"(on_table pg_catalog.regclass, property pg_catalog.text,
  released_from pg_catalog.regclass DEFAULT NULL)
RETURNS pg_catalog.bool LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_clean_v1"(on_table, "unique_text_name_once_v1"(on_table, "unique_text_name_release_v1"(on_table,
  "unique_text_drop_v1"(on_table, 'name'::pg_catalog.text, property), released_from)));
COMMENT ON FUNCTION "unique_text_detach_name_v1"(pg_catalog.regclass, pg_catalog.text, pg_catalog.regclass) IS
  'typeorm-unique-text: removes what unique_text_attach_name_v1 made for a table. Its columns remain.';
