SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
  FROM "page" AS t
  WHERE t."urlHash" = $2
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $1::pg_catalog.text
    AND t."deletedAt" IS NULL
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647;

WITH found AS (
  SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
  FROM "page" AS t
  WHERE t."urlHash" = $2
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $1::pg_catalog.text
    AND t."deletedAt" IS NULL
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
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
  SELECT i.ordinal, i.c0 AS c0, i.c1::uuid AS c1, i.g0
  FROM unnest($1::text[], $2::text[], $3::boolean[])
    WITH ORDINALITY AS i (c0, c1, g0, ordinal)
), found AS (
  SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT NULL::bool AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
    FROM "page" AS t
    WHERE t."urlHash" = i.c1
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM i.c0::pg_catalog.text
      AND t."urlHash" BETWEEN i.c1 AND i.c1
      AND t."deletedAt" IS NULL
      AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
    LIMIT 2
  ) AS t
), created AS (
  INSERT INTO "page" AS t ("url", "urlHash")
  SELECT i.c0,
    i.c1
  FROM input AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal = i.ordinal)
  ORDER BY i.ordinal
  ON CONFLICT DO NOTHING
  RETURNING t."url", t."urlHash", t."urlHashNumber", t."id", t."deletedAt"
)
SELECT * FROM found
UNION ALL
SELECT i.ordinal, true AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."deletedAt" AS s1
FROM created AS t
JOIN input AS i ON t."urlHash" = i.c1
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM i.c0::pg_catalog.text;
