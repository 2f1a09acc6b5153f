/** The entry `typeorm-unique-text/typeorm`: for applications that keep to TypeORM's own calls. */
export { saveFindingTexts, textEquals, textIn } from '../core'
export { textCondition, uniqueTextPaths } from './text-condition'
export { toTextTakenError } from './to-text-taken-error'
