WITH input AS MATERIALIZED (
  SELECT i.ordinal, i.c0 AS c0, i.c1::pg_catalog.uuid AS c1, i.c2, i.g0
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
    pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::boolean[]))
    WITH ORDINALITY AS i (c0, c1, c2, g0, ordinal)
), found AS (
  SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."title" AS s2
    FROM "page" AS t
    WHERE t."urlHash" OPERATOR(pg_catalog.=) i.c1
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c0::pg_catalog.text
      AND t."urlHash" OPERATOR(pg_catalog.>=) i.c1
    AND t."urlHash" OPERATOR(pg_catalog.<=) i.c1
      AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    LIMIT 2
  ) AS t
), created AS (
  INSERT INTO "page" AS t ("url", "urlHash", "title")
  SELECT i.c0,
    i.c1,
    CASE WHEN i.g0 THEN i.c2::character varying ELSE ('none')::character varying END
  FROM input AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal OPERATOR(pg_catalog.=) i.ordinal)
  ORDER BY i.ordinal
  ON CONFLICT DO NOTHING
  RETURNING t."url", t."urlHash", t."urlHashNumber", t."id", t."title"
)
SELECT * FROM found
UNION ALL
SELECT i.ordinal, true AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."title" AS s2
FROM created AS t
JOIN input AS i ON t."urlHash" OPERATOR(pg_catalog.=) i.c1
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c0::pg_catalog.text;

WITH input AS MATERIALIZED (
  SELECT i.ordinal, pg_catalog.round(i.c0::numeric, 2) AS c0, i.c1 AS c1, i.c2 AS c2,
    i.c3::pg_catalog.uuid AS c3, i.g0
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
    pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[]),
    pg_catalog.unnest($5::boolean[]))
    WITH ORDINALITY AS i (c0, c1, c2, c3, g0, ordinal)
), found AS (
  SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number, t."id" AS s0
    FROM "My ""Schema"""."page" AS t
    WHERE t."site" OPERATOR(pg_catalog.=) i.c0
    AND t."urlHash" OPERATOR(pg_catalog.=) i.c3
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c1::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c1::pg_catalog.text IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c2::pg_catalog.text IS NULL)
      AND t."urlHash" OPERATOR(pg_catalog.>=) i.c3
    AND t."urlHash" OPERATOR(pg_catalog.<=) i.c3
      AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    LIMIT 2
  ) AS t
), created AS (
  INSERT INTO "My ""Schema"""."page" AS t ("site", "path", "query", "urlHash")
  SELECT i.c0,
    i.c1,
    i.c2,
    i.c3
  FROM input AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal OPERATOR(pg_catalog.=) i.ordinal)
  ORDER BY i.c3, i.c2 COLLATE pg_catalog."C", i.c1 COLLATE pg_catalog."C", i.c0, i.ordinal
  ON CONFLICT DO NOTHING
  RETURNING t."site", t."path", t."query", t."urlHash", t."urlHashNumber", t."id"
)
SELECT * FROM found
UNION ALL
SELECT i.ordinal, CASE WHEN i.ordinal OPERATOR(pg_catalog.=) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY t."site", t."urlHash", t."urlHashNumber")
    THEN true END AS created, t."urlHashNumber" AS hash_number, t."id" AS s0
FROM created AS t
JOIN input AS i ON t."site" OPERATOR(pg_catalog.=) i.c0
    AND t."urlHash" OPERATOR(pg_catalog.=) i.c3
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c1::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c1::pg_catalog.text IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c2::pg_catalog.text IS NULL);
