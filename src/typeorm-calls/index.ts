/** The entry `typeorm-unique-text/typeorm`: for those who stay with TypeORM's own calls. */
export { textEquals, textIn } from '../typeorm/text-operators'
export { saveFindingTexts } from './save-finding-texts'
export { textCondition } from './text-condition'
export { toTextTakenError } from './to-text-taken-error'
export { uniqueTextPaths } from './unique-text-paths'
