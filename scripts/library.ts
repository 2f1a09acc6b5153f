/**
 * npx tsx scripts/library.ts   makes src/library/texts.ts of src/library/texts.sql, so that a bundle contains the SQL
 */
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'

const FOLDER = path.resolve(__dirname, '../src/library')

/** The module of a file with SQL. It has no backslash and no backtick, so that a migration can quote it as it is. */
export function moduleOf(sql: string): string {
  if (/[\\`]|\$\{/.test(sql)) throw new Error('The SQL contains a backslash, a backtick or a placeholder.')
  return `// Made by scripts/library.ts of texts.sql. Edit that file.\nexport const TEXTS_SQL = \`${sql}\`\n`
}

if (require.main === module) {
  writeFileSync(path.join(FOLDER, 'texts.ts'), moduleOf(readFileSync(path.join(FOLDER, 'texts.sql'), 'utf8')))
}
