DO $guard$
#variable_conflict use_column
DECLARE
  one pg_catalog.record;
  clashes pg_catalog.text;
BEGIN
  LOCK TABLE ONLY "users" IN SHARE ROW EXCLUSIVE MODE;
  FOR one IN
    SELECT t.tgname FROM pg_catalog.pg_trigger AS t
    WHERE t.tgrelid OPERATOR(pg_catalog.=) '"names"'::pg_catalog.regclass
      AND t.tgname OPERATOR(pg_catalog.=) ANY (ARRAY[
        'unique_name_names_insert', 'unique_name_names_update', 'unique_name_names_delete'
      ]::pg_catalog.name[])
  LOOP
    EXECUTE pg_catalog.format('ALTER TABLE %s DISABLE TRIGGER %I', '"names"', one.tgname);
  END LOOP;
  DELETE FROM "names" AS n
  WHERE n."holder" OPERATOR(pg_catalog.=) 'users'
    AND NOT (n."namespace" OPERATOR(pg_catalog.=) 'handle' AND n."holder_column" OPERATOR(pg_catalog.=) 'handle'
      OR n."namespace" OPERATOR(pg_catalog.=) 'handle' AND n."holder_column" OPERATOR(pg_catalog.=) 'nick');
  DELETE FROM "names" AS n
  WHERE n."holder" OPERATOR(pg_catalog.=) 'users' AND n."state" OPERATOR(pg_catalog.=) 'held' AND NOT EXISTS (
    SELECT FROM ONLY "users" AS t
    CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C"),
        ('handle', 'nick', t."nick"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
    WHERE t."id" OPERATOR(pg_catalog.=) (n."holder_key" OPERATOR(pg_catalog.->>) 0)::integer
      AND v.property OPERATOR(pg_catalog.=) n."holder_column"
      AND v.text OPERATOR(pg_catalog.=) n."text" COLLATE pg_catalog."C"
    OFFSET 0
  );
  INSERT INTO "names" AS n (
      "namespace", "text", "text_hash", "text_hash_number", "holder", "holder_column", "holder_key", "state"
    )
  SELECT DISTINCT ON (c.namespace, c.hash)
    c.namespace, c.text, c.hash, 0, 'users', c.property, c.key, 'held'
  FROM (
    SELECT v.*, pg_catalog.md5(v.text)::pg_catalog.uuid AS hash, pg_catalog.jsonb_build_array(t."id") AS key
    FROM ONLY "users" AS t
    CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C"),
        ('handle', 'nick', t."nick"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
    WHERE v.text IS NOT NULL AND NOT EXISTS (
      SELECT FROM "names" AS n
      WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(t."id")
        AND n."holder" OPERATOR(pg_catalog.=) 'users' AND n."state" OPERATOR(pg_catalog.=) 'held'
        AND n."holder_column" OPERATOR(pg_catalog.=) v.property
        AND n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) v.text
    )
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
  -- Without statistics of what was inserted, the server would read all names for each row.
  ANALYZE "names";
  -- Texts of equal hash: the guard finds their numbers.
  FOR one IN
    SELECT c.* FROM (
    SELECT v.*, pg_catalog.md5(v.text)::pg_catalog.uuid AS hash, pg_catalog.jsonb_build_array(t."id") AS key
    FROM ONLY "users" AS t
    CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C"),
        ('handle', 'nick', t."nick"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
    WHERE v.text IS NOT NULL AND NOT EXISTS (
      SELECT FROM "names" AS n
      WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(t."id")
        AND n."holder" OPERATOR(pg_catalog.=) 'users' AND n."state" OPERATOR(pg_catalog.=) 'held'
        AND n."holder_column" OPERATOR(pg_catalog.=) v.property
        AND n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) v.text
    )
  ) AS c
    LEFT JOIN "names" AS n ON n."namespace" OPERATOR(pg_catalog.=) c.namespace
      AND n."text_hash" OPERATOR(pg_catalog.=) c.hash
      AND n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) c.text
    WHERE n."id" IS NULL
    ORDER BY c.namespace, c.hash
  LOOP
    INSERT INTO "names" ("namespace", "text", "holder", "holder_column", "holder_key")
    VALUES (one.namespace, one.text, 'users', one.property, one.key)
    ON CONFLICT DO NOTHING;
  END LOOP;
  SELECT pg_catalog.concat(pg_catalog.string_agg(c.clash, ', '), ' (', pg_catalog.count(*), ' of ',
      pg_catalog.max(c.total), ' are shown)') INTO clashes
    FROM (
      SELECT a.clash, pg_catalog.count(*) OVER () AS total FROM (
    SELECT pg_catalog.format('%s.%s %s and %s.%s %s', 'users', c.property, c.key,
      n."holder", n."holder_column", n."holder_key") AS clash
    FROM (
    SELECT v.*, pg_catalog.md5(v.text)::pg_catalog.uuid AS hash, pg_catalog.jsonb_build_array(t."id") AS key
    FROM ONLY "users" AS t
    CROSS JOIN LATERAL (VALUES
        ('handle', 'handle', t."handle"::pg_catalog.text COLLATE pg_catalog."C"),
        ('handle', 'nick', t."nick"::pg_catalog.text COLLATE pg_catalog."C")
      ) AS v (namespace, property, text)
    WHERE v.text IS NOT NULL AND NOT EXISTS (
      SELECT FROM "names" AS n
      WHERE n."holder_key" OPERATOR(pg_catalog.=) pg_catalog.jsonb_build_array(t."id")
        AND n."holder" OPERATOR(pg_catalog.=) 'users' AND n."state" OPERATOR(pg_catalog.=) 'held'
        AND n."holder_column" OPERATOR(pg_catalog.=) v.property
        AND n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) v.text
    )
  ) AS c
    LEFT JOIN "names" AS n ON n."namespace" OPERATOR(pg_catalog.=) c.namespace
      AND n."text_hash" OPERATOR(pg_catalog.=) c.hash
      AND n."text" COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) c.text
      ) AS a
      LIMIT 10
    ) AS c
    HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0;
  IF clashes IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '23505', TABLE = 'users',
      CONSTRAINT = 'names_unique_index',
      MESSAGE = pg_catalog.concat('rows hold one name: ', clashes,
        '. Rename one of each, then run this again.');
  END IF;
  FOR one IN
    SELECT t.tgname FROM pg_catalog.pg_trigger AS t
    WHERE t.tgrelid OPERATOR(pg_catalog.=) '"names"'::pg_catalog.regclass
      AND t.tgname OPERATOR(pg_catalog.=) ANY (ARRAY[
        'unique_name_names_insert', 'unique_name_names_update', 'unique_name_names_delete'
      ]::pg_catalog.name[])
  LOOP
    EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE TRIGGER %I', '"names"', one.tgname);
  END LOOP;
END
$guard$;

DO $guard$
DECLARE
  one pg_catalog.record;
BEGIN
  IF pg_catalog.to_regclass('"names"') IS NOT NULL THEN
  FOR one IN
    SELECT t.tgname FROM pg_catalog.pg_trigger AS t
    WHERE t.tgrelid OPERATOR(pg_catalog.=) '"names"'::pg_catalog.regclass
      AND t.tgname OPERATOR(pg_catalog.=) ANY (ARRAY[
        'unique_name_names_insert', 'unique_name_names_update', 'unique_name_names_delete'
      ]::pg_catalog.name[])
  LOOP
    EXECUTE pg_catalog.format('ALTER TABLE %s DISABLE TRIGGER %I', '"names"', one.tgname);
  END LOOP;
  DELETE FROM "names" AS n
  WHERE n."holder" OPERATOR(pg_catalog.=) 'users';
  FOR one IN
    SELECT t.tgname FROM pg_catalog.pg_trigger AS t
    WHERE t.tgrelid OPERATOR(pg_catalog.=) '"names"'::pg_catalog.regclass
      AND t.tgname OPERATOR(pg_catalog.=) ANY (ARRAY[
        'unique_name_names_insert', 'unique_name_names_update', 'unique_name_names_delete'
      ]::pg_catalog.name[])
  LOOP
    EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE TRIGGER %I', '"names"', one.tgname);
  END LOOP;
  END IF;
END
$guard$;
