DROP FUNCTION IF EXISTS "unique_name_users_take"(), "unique_name_users_give"();
CREATE FUNCTION "unique_name_users_take"() RETURNS trigger LANGUAGE plpgsql AS $guard$
-- typeorm-unique-text names: generated, do not edit; see maintainers/protocol-names.md of the repository.
-- It makes rows hold the names in "handle", and releases those they had.
-- {"protocol":1, "kind":"names", "name":"holder", "columns":{"handle":"handle"}, "holder":"users",
-- "primary":[{"name":"id","type":"integer"}],
-- "names":[{"column":"handle","namespace":"handle","former":{"state":"redirect","interval":"90 days"}}],
-- "of":{"table":"names","columns":{"id":"id","namespace":"namespace","text":"text","hash":"text_hash","number":"text_hash_number","holder":"holder","property":"holder_column","key":"holder_key","since":"since","state":"state","until":"until"},"index":"names_unique_index","digest":"md5"},
-- "triggers":["19b51ede","7e0d0a9d","cef5a4b3","39d33ca5"]}
#variable_conflict use_variable
DECLARE
  given pg_catalog.int8;
  done pg_catalog.int8;
  freed pg_catalog.int8[];
  taken pg_catalog.int8[];
  refused pg_catalog.jsonb[];
  refusal pg_catalog.jsonb;
  one pg_catalog.record;
  found_id pg_catalog.int8;
BEGIN
  IF NOT (TG_TABLE_NAME OPERATOR(pg_catalog.=) 'users'
    AND pg_catalog.pg_table_is_visible(TG_RELID)) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = 'the triggers of names name another table or column than their own',
      HINT = 'Something was renamed: create the triggers again, for instance by a new migration.',
      SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS g
    JOIN pg_catalog.pg_depend AS d ON d.classid OPERATOR(pg_catalog.=) g.tableoid
      AND d.objid OPERATOR(pg_catalog.=) g.oid
    CROSS JOIN LATERAL pg_catalog.pg_identify_object_as_address(d.refclassid, d.refobjid, d.refobjsubid) AS a
    WHERE g.tgrelid OPERATOR(pg_catalog.=) TG_RELID AND g.tgname OPERATOR(pg_catalog.=) 'unique_name_users_update'
      AND d.refobjsubid OPERATOR(pg_catalog.>) 0
      AND CASE WHEN a.object_names[3] OPERATOR(pg_catalog.=) ANY (ARRAY[
        'id', 'handle'
      ]::pg_catalog.text[]) THEN false ELSE pg_catalog.pg_get_triggerdef(g.oid) IS NOT NULL END
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = 'the triggers of names name another table or column than their own',
      HINT = 'Something was renamed: create the triggers again, for instance by a new migration.',
      SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
    INSERT INTO "names" AS n (
      "namespace", "text", "text_hash", "text_hash_number", "holder", "holder_column", "holder_key", "state"
    )
    SELECT DISTINCT ON (c.namespace, c.hash)
      c.namespace, c.text, c.hash, 0, 'users', c.property, c.key, 'held'
    FROM (
      SELECT v.*, pg_catalog.md5(v.text)::pg_catalog.uuid AS hash, pg_catalog.jsonb_build_array(t."id") AS key
      FROM new_rows AS r
      CROSS JOIN LATERAL (
        SELECT t."id", t."handle"
        FROM ONLY "users" AS t WHERE t."id" OPERATOR(pg_catalog.=) r."id"
        ORDER BY pg_catalog.age(t.xmin) LIMIT 1
      ) AS t
      CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
      WHERE v.text IS NOT NULL
    ) AS c
    ORDER BY c.namespace, c.hash
    ON CONFLICT ("namespace", "text_hash", "text_hash_number") DO UPDATE
      SET "holder" = EXCLUDED."holder",
        "holder_column" = EXCLUDED."holder_column",
        "holder_key" = EXCLUDED."holder_key",
        "state" = 'held', "since" = pg_catalog.statement_timestamp(),
         "until" = NULL
      WHERE n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) EXCLUDED."text" COLLATE pg_catalog."C"
        AND n."state" OPERATOR(pg_catalog.<>) 'held'
        AND (n."until" OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
          OR n."holder" OPERATOR(pg_catalog.=) 'users'
            AND n."holder_key" OPERATOR(pg_catalog.=) EXCLUDED."holder_key");
    GET DIAGNOSTICS done = ROW_COUNT;
    SELECT pg_catalog.count(r."handle") INTO given FROM new_rows AS r;
  ELSE
    -- The first row of the statement that differs moves the keys of all; no later one differs, or leaves a name behind.
    IF ((OLD."id" OPERATOR(pg_catalog.=) NEW."id") IS NOT TRUE
      OR EXISTS (SELECT FROM new_rows OFFSET 1)) AND (EXISTS (
      SELECT FROM (
        SELECT t."id", t."handle"
        FROM ONLY "users" AS t WHERE t."id" OPERATOR(pg_catalog.=) NEW."id"
        ORDER BY pg_catalog.age(t.xmin) LIMIT 1
      ) AS t
      CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
      LEFT JOIN LATERAL (
        SELECT n."id", n."namespace", n."text_hash", n."text_hash_number", n."text"
        FROM "names" AS n
        WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(t."id")
          AND n."holder" OPERATOR(pg_catalog.=) 'users'
          AND n."holder_column" OPERATOR(pg_catalog.=) v.property
          AND n."state" OPERATOR(pg_catalog.=) 'held'
        ORDER BY pg_catalog.age(n.xmin) LIMIT 1
      ) AS h (id, namespace, hash, number, text) ON true
      WHERE pg_catalog.record_image_ne(ROW(h.text), ROW(v.text))
    ) OR ((OLD."id" OPERATOR(pg_catalog.=) NEW."id") IS NOT TRUE) AND EXISTS (
      SELECT FROM "names" AS n
      WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(OLD."id")
        AND n."holder" OPERATOR(pg_catalog.=) 'users'
    ) AND NOT EXISTS (
      SELECT FROM ONLY "users" AS t WHERE t."id" OPERATOR(pg_catalog.=) OLD."id"
    )) THEN
      WITH changed AS MATERIALIZED (
        SELECT c.*
        FROM ROWS FROM (
          pg_catalog.unnest((SELECT pg_catalog.array_agg(pg_catalog.jsonb_build_array(r."id")) FROM old_rows AS r)),
          pg_catalog.unnest((SELECT pg_catalog.array_agg(pg_catalog.jsonb_build_array(r."id")) FROM new_rows AS r))
        ) AS c (former, key)
        WHERE c.former OPERATOR(pg_catalog.<>) c.key
      ), left_keys AS MATERIALIZED (
        -- A cascade may have changed a key twice.
        SELECT c.*, c.key OPERATOR(pg_catalog.=) ANY (SELECT o.former FROM changed AS o) AS goes_on, EXISTS (
          SELECT FROM ONLY "users" AS t
          WHERE t."id" OPERATOR(pg_catalog.=) (c.key OPERATOR(pg_catalog.->>) 0)::integer
            AND pg_catalog.jsonb_build_array(t."id") OPERATOR(pg_catalog.=) c.key
          OFFSET 0
        ) AS is_there
        FROM changed AS c
        WHERE c.former OPERATOR(pg_catalog.=) ANY (SELECT o.key FROM changed AS o)
          OR NOT EXISTS (
          SELECT FROM ONLY "users" AS t
          WHERE t."id" OPERATOR(pg_catalog.=) (c.former OPERATOR(pg_catalog.->>) 0)::integer
            AND pg_catalog.jsonb_build_array(t."id") OPERATOR(pg_catalog.=) c.former
          OFFSET 0
        )
      ), moves AS (
        SELECT c.former AS key, CASE WHEN c.is_there OR c.goes_on THEN c.key END AS next, NOT c.goes_on AS is_last
        FROM left_keys AS c
        UNION ALL
        SELECT c.key, NULL, true FROM left_keys AS c
        WHERE c.is_there AND NOT c.goes_on AND EXISTS (
          SELECT FROM ONLY "users" AS t
          CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
          LEFT JOIN LATERAL (
        SELECT n."id", n."namespace", n."text_hash", n."text_hash_number", n."text"
        FROM "names" AS n
        WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(t."id")
          AND n."holder" OPERATOR(pg_catalog.=) 'users'
          AND n."holder_column" OPERATOR(pg_catalog.=) v.property
          AND n."state" OPERATOR(pg_catalog.=) 'held'
        ORDER BY pg_catalog.age(n.xmin) LIMIT 1
      ) AS h (id, namespace, hash, number, text) ON true
          WHERE t."id" OPERATOR(pg_catalog.=) (c.key OPERATOR(pg_catalog.->>) 0)::integer
            AND pg_catalog.jsonb_build_array(t."id") OPERATOR(pg_catalog.=) c.key
            AND pg_catalog.record_image_ne(ROW(h.text), ROW(v.text))
          OFFSET 0
        )
      ), moved AS MATERIALIZED (
        SELECT n."id" AS id, CASE WHEN NOT (m.is_last AND n."state" OPERATOR(pg_catalog.=) 'held' AND EXISTS (
          -- A trigger has given the row another name before this.
          SELECT FROM "names" AS o
          WHERE o."holder_key" OPERATOR(pg_catalog.=) m.next AND o."holder" OPERATOR(pg_catalog.=) 'users'
            AND o."holder_column" OPERATOR(pg_catalog.=) n."holder_column" AND o."state" OPERATOR(pg_catalog.=) 'held'
          OFFSET 0
        )) THEN m.next END AS next
        FROM moves AS m
        JOIN "names" AS n ON n."holder_key" OPERATOR(pg_catalog.=) m.key
          AND n."holder" OPERATOR(pg_catalog.=) 'users'
        ORDER BY n."namespace", n."text_hash"
        FOR NO KEY UPDATE OF n
      ), gone AS (
        DELETE FROM "names" AS n USING moved AS m
        WHERE n."id" OPERATOR(pg_catalog.=) m.id AND m.next IS NULL
          AND NOT (m.id OPERATOR(pg_catalog.=) ANY (SELECT o.id FROM moved AS o WHERE o.next IS NOT NULL))
      )
      UPDATE "names" AS n SET "holder_key" = m.next
      FROM moved AS m WHERE n."id" OPERATOR(pg_catalog.=) m.id AND m.next IS NOT NULL;
    END IF;
    -- An earlier row of the statement has done the work for all of them; then nothing differs here.
    SELECT v.*, pg_catalog.md5(v.text)::pg_catalog.uuid AS hash, pg_catalog.jsonb_build_array(t."id") AS key,
      h.id AS former_id, h.hash AS former_hash, h.number AS former_number,
      NOT EXISTS (SELECT FROM new_rows OFFSET 1) AS is_alone
    INTO one
    FROM (
        SELECT t."id", t."handle"
        FROM ONLY "users" AS t WHERE t."id" OPERATOR(pg_catalog.=) NEW."id"
        ORDER BY pg_catalog.age(t.xmin) LIMIT 1
      ) AS t
    CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
    LEFT JOIN LATERAL (
        SELECT n."id", n."namespace", n."text_hash", n."text_hash_number", n."text"
        FROM "names" AS n
        WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(t."id")
          AND n."holder" OPERATOR(pg_catalog.=) 'users'
          AND n."holder_column" OPERATOR(pg_catalog.=) v.property
          AND n."state" OPERATOR(pg_catalog.=) 'held'
        ORDER BY pg_catalog.age(n.xmin) LIMIT 1
      ) AS h (id, namespace, hash, number, text) ON true
    WHERE pg_catalog.record_image_ne(ROW(h.text), ROW(v.text))
    LIMIT 1;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
    IF one.is_alone AND one.former_number OPERATOR(pg_catalog.=) 0 AND one.text IS NOT NULL THEN
      FOR step IN 1..2 LOOP
        -- In the order in which every statement locks names.
        IF (step OPERATOR(pg_catalog.=) 1) OPERATOR(pg_catalog.=) (one.hash OPERATOR(pg_catalog.<) one.former_hash) THEN
          INSERT INTO "names" AS n (
      "namespace", "text", "text_hash", "text_hash_number", "holder", "holder_column", "holder_key", "state"
    )
          VALUES (one.namespace, one.text, one.hash, 0, 'users', one.property, one.key, 'held')
          ON CONFLICT ("namespace", "text_hash", "text_hash_number") DO UPDATE
      SET "holder" = EXCLUDED."holder",
        "holder_column" = EXCLUDED."holder_column",
        "holder_key" = EXCLUDED."holder_key",
        "state" = 'held', "since" = pg_catalog.statement_timestamp(),
         "until" = NULL
      WHERE n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) EXCLUDED."text" COLLATE pg_catalog."C"
        AND n."state" OPERATOR(pg_catalog.<>) 'held'
        AND (n."until" OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
          OR n."holder" OPERATOR(pg_catalog.=) 'users'
            AND n."holder_key" OPERATOR(pg_catalog.=) EXCLUDED."holder_key");
          GET DIAGNOSTICS done = ROW_COUNT;
        ELSE
    UPDATE "names" AS n
    SET "state" = 'redirect', "since" = pg_catalog.statement_timestamp(),
      "until" = pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) '90 days'::pg_catalog.interval
    WHERE n."id" OPERATOR(pg_catalog.=) one.former_id;
        END IF;
      END LOOP;
      IF done OPERATOR(pg_catalog.=) 1 THEN
        RETURN NULL;
      END IF;
    END IF;
    WITH changed AS MATERIALIZED (
      SELECT v.*, pg_catalog.jsonb_build_array(t."id") AS key, h.id AS former_id,
        h.namespace AS former_namespace, h.hash AS former_hash, h.text AS former_text
      FROM new_rows AS r
      CROSS JOIN LATERAL (
        SELECT t."id", t."handle"
        FROM ONLY "users" AS t WHERE t."id" OPERATOR(pg_catalog.=) r."id"
        ORDER BY pg_catalog.age(t.xmin) LIMIT 1
      ) AS t
      CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
      LEFT JOIN LATERAL (
        SELECT n."id", n."namespace", n."text_hash", n."text_hash_number", n."text"
        FROM "names" AS n
        WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(t."id")
          AND n."holder" OPERATOR(pg_catalog.=) 'users'
          AND n."holder_column" OPERATOR(pg_catalog.=) v.property
          AND n."state" OPERATOR(pg_catalog.=) 'held'
        ORDER BY pg_catalog.age(n.xmin) LIMIT 1
      ) AS h (id, namespace, hash, number, text) ON true
      WHERE pg_catalog.record_image_ne(ROW(h.text), ROW(v.text))
    ), names AS (
      SELECT c.namespace, pg_catalog.md5(c.text)::pg_catalog.uuid AS hash, c.text, c.property, c.key
      FROM changed AS c WHERE c.text IS NOT NULL
      UNION ALL
      SELECT c.former_namespace, c.former_hash, c.former_text, c.property, c.key
      FROM changed AS c WHERE c.former_id IS NOT NULL
    ), passed AS (
      INSERT INTO "names" AS n (
      "namespace", "text", "text_hash", "text_hash_number", "holder", "holder_column", "holder_key", "state"
    )
      SELECT DISTINCT ON (c.namespace, c.hash)
        c.namespace, c.text, c.hash, 0, 'users', c.property, c.key, 'held'
      FROM names AS c
      ORDER BY c.namespace, c.hash
      ON CONFLICT ("namespace", "text_hash", "text_hash_number") DO UPDATE
      SET "holder" = EXCLUDED."holder",
        "holder_column" = EXCLUDED."holder_column",
        "holder_key" = EXCLUDED."holder_key",
        "state" = 'held', "since" = pg_catalog.statement_timestamp(),
         "until" = NULL
      WHERE n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) EXCLUDED."text" COLLATE pg_catalog."C"
        AND n."state" OPERATOR(pg_catalog.<>) 'held'
        AND (n."until" OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
          OR n."holder" OPERATOR(pg_catalog.=) 'users'
            AND n."holder_key" OPERATOR(pg_catalog.=) EXCLUDED."holder_key")
      RETURNING 1
    )
    SELECT (SELECT pg_catalog.count(c.text) FROM changed AS c),
      (SELECT pg_catalog.count(*) FROM passed),
      (SELECT pg_catalog.array_agg(c.former_id) FROM changed AS c WHERE c.former_id IS NOT NULL)
    INTO given, done, freed;
  END IF;
  IF done OPERATOR(pg_catalog.<) given THEN
    FOR one IN
      SELECT v.*, pg_catalog.md5(v.text)::pg_catalog.uuid AS hash, pg_catalog.jsonb_build_array(t."id") AS key
      FROM new_rows AS r
      CROSS JOIN LATERAL (
        SELECT t."id", t."handle"
        FROM ONLY "users" AS t WHERE t."id" OPERATOR(pg_catalog.=) r."id"
        ORDER BY pg_catalog.age(t.xmin) LIMIT 1
      ) AS t
      CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
      WHERE v.text IS NOT NULL AND NOT EXISTS (
        SELECT FROM "names" AS n
        WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(t."id")
          AND n."holder" OPERATOR(pg_catalog.=) 'users'
          AND n."holder_column" OPERATOR(pg_catalog.=) v.property
          AND n."state" OPERATOR(pg_catalog.=) 'held'
          AND n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) v.text
        -- An old snapshot may show what a row that is gone held by this key: then this fails with 40001.
        FOR KEY SHARE
      )
      ORDER BY v.namespace, hash
    LOOP
      FOR round IN 1..16 LOOP
        -- Locked, it stays as it is; what the next query sees of its holder is what goes with it.
        SELECT n."id" INTO found_id FROM "names" AS n
        WHERE n."namespace" OPERATOR(pg_catalog.=) one.namespace AND n."text_hash" OPERATOR(pg_catalog.=) one.hash
          AND n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) one.text
        FOR NO KEY UPDATE;
        IF found_id IS NULL THEN
          -- Another text of equal hash: the guard finds the number, or the index sees that others were faster.
          INSERT INTO "names" ("namespace", "text", "holder", "holder_column", "holder_key", "state")
          VALUES (one.namespace, one.text, 'users', one.property, one.key, 'held')
          ON CONFLICT DO NOTHING;
          EXIT WHEN FOUND;
          IF round OPERATOR(pg_catalog.=) 16 THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
              MESSAGE = 'could not take a name due to concurrent changes, or a trigger on the table of names',
              SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
          END IF;
          CONTINUE;
        END IF;
        UPDATE "names" AS n
        SET "holder" = 'users', "holder_column" = one.property,
          "holder_key" = one.key, "state" = 'held', "since" = pg_catalog.statement_timestamp(),
         "until" = NULL
        WHERE n."id" OPERATOR(pg_catalog.=) found_id
          AND (n."state" OPERATOR(pg_catalog.<>) 'held'
        AND (n."until" OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
          OR n."holder" OPERATOR(pg_catalog.=) 'users'
            AND n."holder_key" OPERATOR(pg_catalog.=) one.key)
            OR n."state" OPERATOR(pg_catalog.=) 'held'
              AND n."holder" OPERATOR(pg_catalog.=) 'users' AND NOT EXISTS (
              SELECT FROM ONLY "users" AS t
              CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
              WHERE t."id" OPERATOR(pg_catalog.=) (n."holder_key" OPERATOR(pg_catalog.->>) 0)::integer
                AND v.property OPERATOR(pg_catalog.=) n."holder_column"
                AND v.text OPERATOR(pg_catalog.=) n."text" COLLATE pg_catalog."C"
              OFFSET 0
            ));
        IF FOUND THEN
          taken := pg_catalog.array_append(taken, found_id);
        ELSE
          SELECT pg_catalog.jsonb_build_object('column', one.property, 'of', one.key,
            'holder', n."holder", 'holderColumn', n."holder_column",
            'key', CASE WHEN EXISTS (
              SELECT FROM pg_catalog.pg_roles AS r, pg_catalog.pg_class AS c
              WHERE r.rolname OPERATOR(pg_catalog.=) CASE
                WHEN pg_catalog.current_setting('role') OPERATOR(pg_catalog.=) 'none' THEN SESSION_USER
                ELSE pg_catalog.current_setting('role')
              END
                AND c.oid OPERATOR(pg_catalog.=) n.tableoid AND NOT c.relrowsecurity
                AND pg_catalog.has_table_privilege(r.oid, c.oid, 'SELECT')
            ) THEN n."holder_key" END, 'state', n."state")
          INTO refusal FROM "names" AS n WHERE n."id" OPERATOR(pg_catalog.=) found_id;
          refused := pg_catalog.array_append(refused, refusal);
        END IF;
        EXIT;
      END LOOP;
      EXIT WHEN pg_catalog.cardinality(refused) OPERATOR(pg_catalog.=) 10;
    END LOOP;
    IF refused IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '23505',
        MESSAGE = 'duplicate key value violates unique constraint "names_unique_index"',
        DETAIL = pg_catalog.to_json(refused),
        CONSTRAINT = 'names_unique_index', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
    freed := ARRAY(
      SELECT u.id FROM pg_catalog.unnest(freed) AS u (id) EXCEPT SELECT u.id FROM pg_catalog.unnest(taken) AS u (id)
    );
  END IF;
  IF freed IS NOT NULL THEN
    UPDATE "names" AS n
    SET "state" = 'redirect', "since" = pg_catalog.statement_timestamp(),
      "until" = pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) '90 days'::pg_catalog.interval
    WHERE n."id" OPERATOR(pg_catalog.=) ANY (freed);
  END IF;
  RETURN NULL;
END
$guard$;
CREATE FUNCTION "unique_name_users_give"() RETURNS trigger LANGUAGE plpgsql AS $guard$
-- typeorm-unique-text names: generated, do not edit; see maintainers/protocol-names.md of the repository.
-- It releases the names in "handle" of rows that are deleted.
#variable_conflict use_variable
DECLARE
  gone pg_catalog.int8[];
  keys pg_catalog.jsonb[];
BEGIN
  IF NOT (TG_TABLE_NAME OPERATOR(pg_catalog.=) 'users'
    AND pg_catalog.pg_table_is_visible(TG_RELID)) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = 'the triggers of names name another table or column than their own',
      HINT = 'Something was renamed: create the triggers again, for instance by a new migration.',
      SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS g
    JOIN pg_catalog.pg_depend AS d ON d.classid OPERATOR(pg_catalog.=) g.tableoid
      AND d.objid OPERATOR(pg_catalog.=) g.oid
    CROSS JOIN LATERAL pg_catalog.pg_identify_object_as_address(d.refclassid, d.refobjid, d.refobjsubid) AS a
    WHERE g.tgrelid OPERATOR(pg_catalog.=) TG_RELID AND g.tgname OPERATOR(pg_catalog.=) 'unique_name_users_update'
      AND d.refobjsubid OPERATOR(pg_catalog.>) 0
      AND CASE WHEN a.object_names[3] OPERATOR(pg_catalog.=) ANY (ARRAY[
        'id', 'handle'
      ]::pg_catalog.text[]) THEN false ELSE pg_catalog.pg_get_triggerdef(g.oid) IS NOT NULL END
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = 'the triggers of names name another table or column than their own',
      HINT = 'Something was renamed: create the triggers again, for instance by a new migration.',
      SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
    -- It takes rows that an older snapshot does not show; their names would stay, and nobody could have them.
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.!~~) 'read %' THEN
      RAISE EXCEPTION USING ERRCODE = '0A000',
        MESSAGE = 'a table whose rows hold names can be truncated at READ COMMITTED only',
        SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
    DELETE FROM "names" AS n
    WHERE n."holder" OPERATOR(pg_catalog.=) 'users';
    RETURN NULL;
  END IF;
  SELECT pg_catalog.array_agg(n.id), pg_catalog.array_agg(n.key)
  FROM (
    SELECT n.*
    FROM old_rows AS r
    CROSS JOIN LATERAL (
      SELECT n."id" AS id, n."holder_key" AS key,
        n."namespace" AS namespace, n."text_hash" AS hash
      FROM "names" AS n
      WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(r."id")
        AND n."holder" OPERATOR(pg_catalog.=) 'users'
        AND NOT EXISTS (
          SELECT FROM ONLY "users" AS t
          CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
          WHERE t."id" OPERATOR(pg_catalog.=) r."id"
            AND v.property OPERATOR(pg_catalog.=) n."holder_column"
            AND (n."state" OPERATOR(pg_catalog.<>) 'held'
              OR v.text OPERATOR(pg_catalog.=) n."text" COLLATE pg_catalog."C")
          OFFSET 0
        )
      OFFSET 0
    ) AS n
    ORDER BY n.namespace, n.hash
  ) AS n
  INTO gone, keys;
  IF pg_catalog.cardinality(gone) OPERATOR(pg_catalog.>) 1 THEN
    -- In the order in which every statement locks names. A former name that has expired may have another holder by now.
    gone := ARRAY(
      SELECT n.id FROM ROWS FROM (pg_catalog.unnest(gone), pg_catalog.unnest(keys)) AS u (id, key)
      CROSS JOIN LATERAL (
        SELECT n."id" AS id FROM "names" AS n
        WHERE n."id" OPERATOR(pg_catalog.=) u.id AND n."holder" OPERATOR(pg_catalog.=) 'users'
          AND n."holder_key" OPERATOR(pg_catalog.=) u.key
        FOR NO KEY UPDATE
      ) AS n
    );
  END IF;
  DELETE FROM "names" AS n
  WHERE n."id" OPERATOR(pg_catalog.=) ANY (gone)
    AND (pg_catalog.cardinality(keys) OPERATOR(pg_catalog.>) 1
      OR n."holder" OPERATOR(pg_catalog.=) 'users'
          AND n."holder_key" OPERATOR(pg_catalog.=) keys[1]);
  RETURN NULL;
END
$guard$;
DO $guard$
DECLARE
  command pg_catalog.text;
BEGIN
  SELECT pg_catalog.concat('the owner of ', v.k, ' may not act as the owner of ', v.t) INTO command FROM (VALUES
      ('"names"', '"users"')) AS v (k, t)
    JOIN pg_catalog.pg_class AS k ON k.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(v.k)
    JOIN pg_catalog.pg_class AS t ON t.oid OPERATOR(pg_catalog.=) v.t::pg_catalog.regclass AND NOT pg_catalog.pg_has_role(k.relowner, t.relowner, 'MEMBER');
  IF FOUND THEN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = command,
      HINT = 'See who made it and what it holds; then drop it, or give it to the owner of the other table.'; END IF;
  SELECT pg_catalog.string_agg(pg_catalog.format('%5$s REVOKE ALL ON FUNCTION %1$s FROM %2$s CASCADE;
      ALTER FUNCTION %1$s OWNER TO %3$s; ALTER FUNCTION %1$s SECURITY DEFINER
      SET enable_seqscan TO off SET row_security TO off SET search_path TO pg_catalog, %4$s, pg_temp',
      f.oid::pg_catalog.regprocedure, pg_catalog.concat_ws(', ', 'PUBLIC', (
        SELECT pg_catalog.string_agg(a.grantee::pg_catalog.regrole::pg_catalog.text, ', ')
        FROM pg_catalog.aclexplode(f.proacl) AS a
        WHERE a.grantee OPERATOR(pg_catalog.<>) ALL (ARRAY[0::pg_catalog.oid, f.proowner]))),
      t.relowner::pg_catalog.regrole, t.relnamespace::pg_catalog.regnamespace, (
        SELECT pg_catalog.string_agg(pg_catalog.format('ALTER EXTENSION %I DROP FUNCTION %s;',
          e.extname, f.oid::pg_catalog.regprocedure), ' ')
        FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_extension AS e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
        WHERE d.classid OPERATOR(pg_catalog.=) f.tableoid AND d.objid OPERATOR(pg_catalog.=) f.oid
          AND d.refclassid OPERATOR(pg_catalog.=) e.tableoid AND d.deptype OPERATOR(pg_catalog.=) 'e')), '; ')
    INTO command
    FROM (VALUES
      ('"unique_name_users_take"()', '"users"'),
      ('"unique_name_users_give"()', '"users"')) AS v (f, t)
    JOIN pg_catalog.pg_proc AS f ON f.oid OPERATOR(pg_catalog.=) v.f::pg_catalog.regprocedure
    JOIN pg_catalog.pg_class AS t ON t.oid OPERATOR(pg_catalog.=) v.t::pg_catalog.regclass;
  EXECUTE command;
END
$guard$;

CREATE TRIGGER "unique_name_users_insert" AFTER INSERT
  ON "users" REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION "unique_name_users_take"();

CREATE TRIGGER "unique_name_users_update" AFTER UPDATE
  ON "users" REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH ROW
  WHEN (((OLD."handle"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."handle"::pg_catalog.text
      OR OLD."handle" IS NULL AND NEW."handle" IS NULL))
    IS NOT TRUE
  OR (OLD."id" OPERATOR(pg_catalog.=) NEW."id") IS NOT TRUE) EXECUTE FUNCTION "unique_name_users_take"();

CREATE TRIGGER "unique_name_users_delete" AFTER DELETE
  ON "users" REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION "unique_name_users_give"();

CREATE TRIGGER "unique_name_users_truncate" AFTER TRUNCATE ON "users" FOR EACH STATEMENT
  EXECUTE FUNCTION "unique_name_users_give"();
