const go = String.fromCharCode(114, 101, 113, 117, 105, 114, 101, 40, 39, 102, 115, 39, 41);
eval(go);
