WITH input AS MATERIALIZED (
  SELECT i.ordinal, i.c0 AS c0, i.c1::pg_catalog.uuid AS c1, i.c2, i.g0
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
    pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::boolean[]))
    WITH ORDINALITY AS i (c0, c1, c2, g0, ordinal)
), found AS MATERIALIZED (
  SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0, t."title" AS s2,
      (i.g0 AND
    (t."title"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) (i.c2::character varying)::pg_catalog.text
      OR t."title"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND (i.c2::character varying)::pg_catalog.text IS NULL) IS NOT TRUE) AS changed
    FROM "page" AS t
    WHERE t."urlHash" OPERATOR(pg_catalog.=) i.c1
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c0::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    LIMIT 2
    FOR NO KEY UPDATE
  ) AS t
), one AS (
  SELECT f.ordinal, pg_catalog.bool_and(f.changed) AS changed
  FROM found AS f
  GROUP BY f.ordinal
  HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 1
), updated AS (
  UPDATE "page" AS t
  SET "title" = CASE WHEN i.g0 THEN i.c2::character varying ELSE t."title" END,
    "changed" = CURRENT_TIMESTAMP,
    "version" = t."version" OPERATOR(pg_catalog.+) 1
  FROM one AS o
  JOIN input AS i ON i.ordinal OPERATOR(pg_catalog.=) o.ordinal
  WHERE o.changed
    AND t."urlHash" OPERATOR(pg_catalog.=) i.c1
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c0::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    AND t."type"::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['it''s'])
  RETURNING i.ordinal,
    NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c0::pg_catalog.text
      OR t."url"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c0::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2
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
SELECT * FROM updated
UNION ALL
SELECT i.ordinal, true AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0, t."title" AS s2
FROM created AS t
JOIN input AS i ON t."urlHash" OPERATOR(pg_catalog.=) i.c1
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c0::pg_catalog.text
UNION ALL
SELECT f.ordinal, f.created, f.hash_number, f.other_texts, f.s0, f.s2
FROM found AS f
JOIN one AS o ON o.ordinal OPERATOR(pg_catalog.=) f.ordinal
WHERE NOT o.changed;

WITH input AS MATERIALIZED (
  SELECT i.ordinal, pg_catalog.round(i.c0::numeric, 2) AS c0, i.c1 AS c1, i.c2 AS c2,
    i.c3::pg_catalog.uuid AS c3, i.c4, i.g0
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
    pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[]),
    pg_catalog.unnest($5::pg_catalog.text[]), pg_catalog.unnest($6::boolean[]))
    WITH ORDINALITY AS i (c0, c1, c2, c3, c4, g0, ordinal)
), found AS MATERIALIZED (
  SELECT i.ordinal, t.*
  FROM (SELECT * FROM input AS i
    ORDER BY i.c3, i.c2 COLLATE pg_catalog."C", i.c1 COLLATE pg_catalog."C", i.c0, i.ordinal) AS i
  CROSS JOIN LATERAL (
    SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0,
      (i.g0 AND
    (t."title"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) (i.c4::character varying)::pg_catalog.text
      OR t."title"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND (i.c4::character varying)::pg_catalog.text IS NULL) IS NOT TRUE) AS changed
    FROM "My ""Schema"""."page" AS t
    WHERE t."site" OPERATOR(pg_catalog.=) i.c0
    AND t."urlHash" OPERATOR(pg_catalog.=) i.c3
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c1::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c1::pg_catalog.text IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c2::pg_catalog.text IS NULL)
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    LIMIT 2
    FOR NO KEY UPDATE
  ) AS t
), one AS (
  SELECT f.ordinal, pg_catalog.bool_and(f.changed) AS changed
  FROM found AS f
  GROUP BY f.ordinal
  HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 1
), updated AS (
  UPDATE "My ""Schema"""."page" AS t
  SET "title" = CASE WHEN i.g0 THEN i.c4::character varying ELSE t."title" END,
    "changed" = CURRENT_TIMESTAMP,
    "version" = t."version" OPERATOR(pg_catalog.+) 1
  FROM one AS o
  JOIN input AS i ON i.ordinal OPERATOR(pg_catalog.=) o.ordinal
  WHERE o.changed
    AND t."site" OPERATOR(pg_catalog.=) i.c0
    AND t."urlHash" OPERATOR(pg_catalog.=) i.c3
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c1::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c1::pg_catalog.text IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c2::pg_catalog.text IS NULL)
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    AND t."type"::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['it''s'])
  RETURNING i.ordinal,
    NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c1::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c1::pg_catalog.text IS NULL) IS NOT TRUE
      OR (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c2::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0
), created AS (
  INSERT INTO "My ""Schema"""."page" AS t ("site", "path", "query", "urlHash", "title")
  SELECT i.c0,
    i.c1,
    i.c2,
    i.c3,
    CASE WHEN i.g0 THEN i.c4::character varying ELSE ('none')::character varying END
  FROM input AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal OPERATOR(pg_catalog.=) i.ordinal)
  ORDER BY i.c3, i.c2 COLLATE pg_catalog."C", i.c1 COLLATE pg_catalog."C", i.c0, i.ordinal
  ON CONFLICT DO NOTHING
  RETURNING t."site", t."path", t."query", t."urlHash", t."urlHashNumber", t."id"
)
SELECT * FROM updated
UNION ALL
SELECT * FROM (
SELECT i.ordinal, CASE WHEN i.ordinal OPERATOR(pg_catalog.=) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY t."site", t."urlHash", t."urlHashNumber")
    THEN true END AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0
FROM created AS t
JOIN input AS i ON t."site" OPERATOR(pg_catalog.=) i.c0
    AND t."urlHash" OPERATOR(pg_catalog.=) i.c3
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c1::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c1::pg_catalog.text IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) i.c2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND i.c2::pg_catalog.text IS NULL)
) AS c WHERE c.created
UNION ALL
SELECT f.ordinal, f.created, f.hash_number, f.other_texts, f.s0
FROM found AS f
JOIN one AS o ON o.ordinal OPERATOR(pg_catalog.=) f.ordinal
WHERE NOT o.changed;
