SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
  FROM "page" AS t
  WHERE t."urlHash" OPERATOR(pg_catalog.=) $2
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
    AND t."deletedAt" IS NULL
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647;

WITH found AS (
  SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
  FROM "page" AS t
  WHERE t."urlHash" OPERATOR(pg_catalog.=) $2
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
    AND t."deletedAt" IS NULL
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
), created AS (
  INSERT INTO "page" AS t ("url", "urlHash")
  SELECT $1, $2
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT ("urlHash", "urlHashNumber") WHERE "deletedAt" IS NULL DO NOTHING
  RETURNING true AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
)
SELECT * FROM found
UNION ALL
SELECT * FROM created;

WITH input AS MATERIALIZED (
  SELECT i.ordinal, i.c0 AS c0, i.c1::pg_catalog.uuid AS c1, i.g0
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
    pg_catalog.unnest($3::boolean[]))
    WITH ORDINALITY AS i (c0, c1, g0, ordinal)
), found AS (
  SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
    FROM "page" AS t
    WHERE t."urlHash" OPERATOR(pg_catalog.=) i.c1
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c0::pg_catalog.text
      AND t."urlHash" OPERATOR(pg_catalog.>=) i.c1
    AND t."urlHash" OPERATOR(pg_catalog.<=) i.c1
      AND t."deletedAt" IS NULL
      AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    LIMIT 2
  ) AS t
), created AS (
  INSERT INTO "page" AS t ("url", "urlHash")
  SELECT i.c0,
    i.c1
  FROM input AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal OPERATOR(pg_catalog.=) i.ordinal)
  ORDER BY i.ordinal
  ON CONFLICT DO NOTHING
  RETURNING t."url", t."urlHash", t."urlHashNumber", t."id", t."deletedAt"
)
SELECT * FROM found
UNION ALL
SELECT i.ordinal, true AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
FROM created AS t
JOIN input AS i ON t."urlHash" OPERATOR(pg_catalog.=) i.c1
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c0::pg_catalog.text;
