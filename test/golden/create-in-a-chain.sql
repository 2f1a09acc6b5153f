INSERT INTO "page" AS t ("url", "urlHash", "title")
SELECT $1, NULL, $3
WHERE $2::uuid IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING true AS created, t."urlHashNumber" AS hash_number, t."id" AS s0, t."url" AS s1, t."title" AS s2;

INSERT INTO "My ""Schema"""."page" AS t ("site", "path", "query", "urlHash")
SELECT $1, $2, $3, NULL
WHERE $4::uuid IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING true AS created, t."urlHashNumber" AS hash_number, t."id" AS s0;
