/** Of the table of names: which states there are, and that a name which is held has no end. */
export const NAME_STATE_CHECK = `"state" IN ('held', 'reserved', 'redirect') AND ("state" <> 'held' OR "until" IS NULL)`
