
-- typeorm-unique-text kernel: generated, do not edit; see maintainers/protocol.md of the repository.
#variable_conflict use_variable
DECLARE
  -- Arguments: a trigger on the columns of text, scope, hash, number, flag and delete date, whatever they are called;
  -- how many are of the text, and of the scope; the index; BEFORE: the longest chain.
  texts CONSTANT integer := TG_ARGV[1];
  fixed CONSTANT integer := texts OPERATOR(pg_catalog.+) TG_ARGV[2]::pg_catalog.int4;
  -- Rows of children by INHERITS are no rows of the table.
  own CONSTANT pg_catalog.text := pg_catalog.format('ONLY %s', TG_RELID::pg_catalog.regclass);
  names pg_catalog.name[];
  number pg_catalog.name;
  chained pg_catalog.name;
  chains pg_catalog.text[];
  same pg_catalog.text[];
  live pg_catalog.text[];
  locked boolean := false;
  met boolean;
  first integer;
  last integer;
  taken integer;
  length bigint;
  leaves boolean := false;
  comes boolean := false;
  stands boolean;
  lowest integer;
  done integer;
  r pg_catalog.record;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_type AS y
    WHERE y.oid OPERATOR(pg_catalog.=) pg_catalog.format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)::pg_catalog.regtype
      AND pg_catalog.pg_get_userbyid(y.typowner) OPERATOR(pg_catalog.=) CURRENT_USER) THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE =
        'the guard does not belong to the owner of the table: a new migration creates it again',
      CONSTRAINT = TG_ARGV[3], SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  SELECT pg_catalog.array_agg(a.object_names[3]::pg_catalog.name ORDER BY k.i) INTO names
    FROM pg_catalog.pg_trigger AS g
    JOIN pg_catalog.pg_proc AS f ON f.oid OPERATOR(pg_catalog.=) g.tgfoid
    CROSS JOIN LATERAL pg_catalog.unnest(g.tgattr) WITH ORDINALITY AS k (attnum, i)
    CROSS JOIN LATERAL pg_catalog.pg_identify_object_as_address(
      'pg_catalog.pg_class'::pg_catalog.regclass, g.tgrelid, k.attnum) AS a
    -- By what it is given: on a shard, a trigger has another name. That of another role does not count.
    WHERE g.tgrelid OPERATOR(pg_catalog.=) TG_RELID AND f.proname OPERATOR(pg_catalog.=) 'unique_text_chain_v1'
      AND pg_catalog.pg_get_userbyid(f.proowner) OPERATOR(pg_catalog.=) CURRENT_USER
      AND pg_catalog.starts_with(pg_catalog.encode(g.tgargs, 'hex'), pg_catalog.encode(
        pg_catalog.convert_to(TG_ARGV[0], 'UTF8'), 'hex') OPERATOR(pg_catalog.||) '00')
      AND pg_catalog.pg_get_triggerdef(g.oid) IS NOT NULL;
  IF names IS NULL AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS g
    WHERE g.tgrelid OPERATOR(pg_catalog.=) TG_RELID AND g.tgname OPERATOR(pg_catalog.=) TG_NAME
      AND pg_catalog.pg_get_triggerdef(g.oid) IS NOT NULL) THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = 'the guard is newer than the snapshot of the transaction',
      CONSTRAINT = TG_ARGV[3], SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  ELSIF names IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = pg_catalog.format('the guard has lost its trigger %s', TG_ARGV[0]),
      HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
      CONSTRAINT = TG_ARGV[3], SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  number := names[fixed OPERATOR(pg_catalog.+) 2];
  chained := names[fixed OPERATOR(pg_catalog.+) 3];
  SELECT pg_catalog.array_agg(c.predicate ORDER BY p.i), pg_catalog.array_agg(x.predicate ORDER BY p.i),
      pg_catalog.array_agg(CASE WHEN names[fixed OPERATOR(pg_catalog.+) 4] IS NULL THEN 'true'
        ELSE pg_catalog.format('%s.%I IS NULL', p.l, names[fixed OPERATOR(pg_catalog.+) 4]) END ORDER BY p.i)
    INTO chains, same, live
    FROM (VALUES
      (1, 't', '($1)'), (2, 's', '($1)'), (3, 't', 's'), (4, '($2)', '($1)'), (5, '($1)', '($2)')) AS p (i, l, r)
    CROSS JOIN LATERAL (
      SELECT pg_catalog.string_agg(
          pg_catalog.format('%1$s.%2$I OPERATOR(pg_catalog.=) %3$s.%2$I', p.l, n, p.r), ' AND ')
        FROM pg_catalog.unnest(names[texts OPERATOR(pg_catalog.+) 1 : fixed OPERATOR(pg_catalog.+) 1]) AS n
    ) AS c (predicate)
    CROSS JOIN LATERAL (
      SELECT pg_catalog.string_agg(pg_catalog.format('(%1$s.%2$I%4$s OPERATOR(pg_catalog.=) %3$s.%2$I%4$s
          OR %1$s.%2$I IS NULL AND %3$s.%2$I IS NULL)',
          p.l, n, p.r, '::pg_catalog.text COLLATE pg_catalog."C"'), ' AND ')
        FROM pg_catalog.unnest(names[1 : texts]) AS n
    ) AS x (predicate);
  IF TG_WHEN OPERATOR(pg_catalog.=) 'BEFORE' THEN
    IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
      -- An upsert that sets the text would do this to a row of another text that took its number meanwhile.
      EXECUTE pg_catalog.format('SELECT %s AND %s', chains[4], live[4]) INTO met USING NEW, OLD;
      IF met THEN
        RAISE EXCEPTION USING ERRCODE = '40001',
          MESSAGE = 'a text cannot become another one of equal hash in place',
          HINT = 'An upsert met the row of another text: try again. An UPDATE: store the text as a new row.',
          CONSTRAINT = TG_ARGV[3], SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
      END IF;
      -- A row that goes to another partition is in its chain there. With -1 it meets the INSERT triggers of that one.
      EXECUTE pg_catalog.format('SELECT NOT (%s) FROM (SELECT ($1).*) AS t',
        coalesce(pg_catalog.pg_get_partition_constraintdef(TG_RELID), 'true')) INTO met USING NEW;
      IF met THEN
        RETURN NEW;
      END IF;
    END IF;
    FOR round IN 1..16 LOOP
      -- Once without the lock and, unless that is enough, once more under it: a new query has a new snapshot, which
      -- shows all that earlier holders of the lock have committed, and nobody can add more.
      EXECUTE pg_catalog.format('SELECT pg_catalog.min(t.%1$I), pg_catalog.max(t.%1$I), pg_catalog.count(*),
          pg_catalog.min(t.%1$I) FILTER (WHERE %2$s)
        FROM %3$s AS t WHERE %4$s AND %5$s', number, same[1], own, chains[1], live[1])
        INTO first, last, length, taken USING NEW;
      IF locked AND taken IS NULL AND length OPERATOR(pg_catalog.>=) TG_ARGV[4]::pg_catalog.int4 THEN
        RAISE EXCEPTION USING ERRCODE = 'UT002',
          MESSAGE = pg_catalog.format('the chain is full: %s texts share one hash', TG_ARGV[4]),
          CONSTRAINT = TG_ARGV[3], SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
      ELSIF locked THEN
        RETURN pg_catalog.jsonb_populate_record(NEW,
          pg_catalog.jsonb_build_object(number, coalesce(taken, last OPERATOR(pg_catalog.+) 1)));
      ELSIF last IS NULL OR taken OPERATOR(pg_catalog.=) 0 OR first OPERATOR(pg_catalog.>) 0 THEN
        -- Empty, or taken at 0: the index decides, and knows no snapshots. Others but no anchor: this very statement
        -- took the anchor, and a lock would wait for ever. Settle compares what gets 0.
        RETURN pg_catalog.jsonb_populate_record(NEW, pg_catalog.jsonb_build_object(number, coalesce(taken, 0),
          chained, (first OPERATOR(pg_catalog.>) 0) IS TRUE));
      END IF;
      -- The anchor is the mutex of the chain; at REPEATABLE READ this fails where it has changed since the snapshot.
      EXECUTE pg_catalog.format('SELECT FROM %s AS t WHERE %s AND %s AND t.%I OPERATOR(pg_catalog.=) 0
        FOR NO KEY UPDATE', own, chains[1], live[1], number) USING NEW;
      GET DIAGNOSTICS length = ROW_COUNT;
      locked := length OPERATOR(pg_catalog.>) 0;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = 'could not lock the anchor of a chain due to concurrent deletes',
      CONSTRAINT = TG_ARGV[3], SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
    EXECUTE pg_catalog.format('SELECT %s', live[5]) INTO comes USING NEW;
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
    EXECUTE pg_catalog.format('SELECT ($1).%I OPERATOR(pg_catalog.=) 0 AND %s', number, live[5]) INTO leaves USING OLD;
  ELSE
    -- A promotion: the row was the anchor of a chain, and is not any more. A touch: the row has come to a number that
    -- is not 0, or what its chain stands on has changed.
    EXECUTE pg_catalog.format('SELECT o.anchor AND o.flag AND o.live AND (s.chain IS NOT TRUE OR NOT n.live),
        n.live AND (n.later AND NOT s.number
          OR (n.later OR n.flag) AND (s.text IS NOT TRUE OR s.chain IS NOT TRUE OR NOT o.live)
          OR o.flag AND NOT n.flag AND s.chain AND o.live)
      FROM (SELECT %3$s, ($1).%1$I OPERATOR(pg_catalog.=) 0, ($1).%2$I) AS o (live, anchor, flag),
        (SELECT %4$s, ($2).%1$I OPERATOR(pg_catalog.>) 0, ($2).%2$I) AS n (live, later, flag),
        (SELECT %5$s, %6$s, ($1).%1$I OPERATOR(pg_catalog.=) ($2).%1$I) AS s (chain, text, number)',
      number, chained, live[5], live[4], chains[5], same[5]) INTO leaves, comes USING OLD, NEW;
  END IF;
  FOR way IN 1..2 LOOP
    IF way OPERATOR(pg_catalog.=) 1 THEN
      CONTINUE WHEN leaves IS NOT TRUE;
      r := OLD;
    ELSE
      CONTINUE WHEN comes IS NOT TRUE;
      r := NEW;
    END IF;
    EXECUTE pg_catalog.format('SELECT t.%1$I FROM %2$s AS t WHERE %3$s AND %4$s ORDER BY t.%1$I LIMIT 1
      FOR NO KEY UPDATE', number, own, chains[1], live[1]) INTO lowest USING r;
    IF lowest IS NULL THEN
      CONTINUE;
    ELSIF lowest OPERATOR(pg_catalog.=) 0 THEN
      -- Also where it is true: on the new version fail, with 40001, transactions with an older snapshot, in place of
      -- acting on that. A lock would leave no trace.
      EXECUTE pg_catalog.format('UPDATE %s AS t SET %I = true WHERE %s AND %s AND t.%I OPERATOR(pg_catalog.=) 0',
        own, chained, chains[1], live[1], number) USING r;
    ELSE
      EXECUTE pg_catalog.format('UPDATE %s AS t SET %I = 0, %I = true
        WHERE %s AND %s AND t.%I OPERATOR(pg_catalog.=) $2', own, number, chained, chains[1], live[1], number)
        USING r, lowest;
    END IF;
    GET DIAGNOSTICS done = ROW_COUNT;
    -- The row was locked and there: only a trigger of the table can have undone this.
    EXECUTE pg_catalog.format('SELECT EXISTS (
      SELECT FROM %s AS t WHERE %s AND %s AND t.%I OPERATOR(pg_catalog.=) 0 AND t.%I)',
      own, chains[1], live[1], number, chained) INTO stands USING r;
    IF done OPERATOR(pg_catalog.=) 0 OR NOT stands THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'a trigger of the table undoes what the guard does to a chain',
        HINT = 'The trigger must keep hash, hash number and flag as they are, and let their UPDATE pass.',
        CONSTRAINT = TG_ARGV[3], SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
    -- What is promoted was proved when it came; equal texts from a time without the guard must not keep each other from
    -- being deleted.
    CONTINUE WHEN way OPERATOR(pg_catalog.=) 1 AND lowest OPERATOR(pg_catalog.>) 0;
    -- This statement may have put a text at 0 past every proof; a trigger may have changed a text after the proof.
    -- Compared by number: an old snapshot can show two rows at one number, of which one is gone.
    EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM %1$s AS s JOIN %1$s AS t
        ON %2$s AND %3$s AND t.%4$I OPERATOR(pg_catalog.<>) s.%4$I AND %5$s
      WHERE %6$s AND %7$s AND s.%4$I OPERATOR(pg_catalog.=) ANY (ARRAY[0, ($1).%4$I]))',
      own, chains[3], live[3], number, same[3], chains[2], live[2]) INTO stands USING r;
    IF stands THEN
      RAISE EXCEPTION USING ERRCODE = '23505',
        MESSAGE = pg_catalog.format('duplicate key value violates unique constraint %I', TG_ARGV[3]),
        HINT = 'The text, or another of its hash, is stored twice: run the doctor.',
        CONSTRAINT = TG_ARGV[3], SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END LOOP;
  RETURN NULL;
END
